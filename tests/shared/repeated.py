"""The number of repetitions of a randomized test: few, or many under `make soak`."""

from __future__ import annotations

import os

SOAK = os.environ.get("CYKAFKA_TEST_SOAK") == "1"
_KILLS = os.environ.get("CYKAFKA_TEST_KILLS")
_EXAMPLES = os.environ.get("CYKAFKA_TEST_EXAMPLES")


def kills(few: int, many: int) -> int:
    """The number of processes that a test kills; CYKAFKA_TEST_KILLS overrides it."""
    return int(_KILLS) if _KILLS else many if SOAK else few


def examples(many: int, few: int | None = None) -> int:
    """The number of examples of a property; CYKAFKA_TEST_EXAMPLES overrides it."""
    return int(_EXAMPLES) if _EXAMPLES else many if SOAK else few or max(many // 5, 3)
