"""The live objects of this process, as a test counts them before it makes its own."""

from __future__ import annotations

import gc


def live_before() -> dict[str, int]:
    """`cykafka.testing.live_handles()`, after the garbage of earlier tests is freed.

    An exception and its traceback often form a cycle, which keeps what a test used until Python
    collects it: perhaps in the next test, whose count would then change without its doing.
    """
    from cykafka.testing import live_handles

    gc.collect()
    return live_handles()
