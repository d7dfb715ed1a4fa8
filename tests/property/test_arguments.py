"""No argument to any callable crashes or hangs the interpreter.

The test finds the callables in the package, so it covers new functions without a change here.
`CYKAFKA_TEST_EXAMPLES=5000` tries more examples. `CYKAFKA_TEST_SEED=...` repeats them.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import arguments
import pytest
from repeated import examples

EXAMPLES = examples(150)
SEED = os.environ.get("CYKAFKA_TEST_SEED")


@pytest.mark.soak
@pytest.mark.timeout(60 + EXAMPLES)
@pytest.mark.parametrize("group", arguments.groups())
def test_calls_return_or_raise_an_ordinary_exception(group: str, tmp_path: Path) -> None:
    seed = SEED or str(random.SystemRandom().randrange(2**32))
    log = tmp_path / "calls"
    done = subprocess.run(
        [sys.executable, arguments.__file__, group, str(EXAMPLES), seed, str(log)],
        capture_output=True, text=True, errors="replace", timeout=50 + EXAMPLES, check=False,
    )  # fmt: skip
    calls = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    assert done.returncode == 0, (
        f"CYKAFKA_TEST_SEED={seed}: exit status {done.returncode} after\n"
        + "\n".join(calls[-10:])
        + f"\n{done.stderr}"
    )
    assert len(calls) >= EXAMPLES / 3


def test_every_handle_is_opened_for_its_methods() -> None:
    opened = {cls for cls, _ in arguments.HANDLES.values()}
    assert arguments.handle_classes() <= opened, "add these classes to arguments.HANDLES"
