"""Repeat the randomized tests until the time is over: ``make soak DURATION=10m SEED=...``.

The first round uses the given seed or a random one. Each further round uses the next number. The
last round is completed. The exit status is 0 if every round passed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import time

UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a duration such as 90s, 10m or 2h")
    return float(found[1]) * UNITS[found[2] or "s"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duration", type=seconds, default=0.0, help="such as 90s, 10m or 2h")
    parser.add_argument("--seed", type=int, help="of the first round, as a failure names it")
    arguments, pytest_arguments = parser.parse_known_args()
    seed = arguments.seed
    if seed is None:
        seed = random.SystemRandom().randrange(2**32)
    begun = time.monotonic()
    rounds = failed = 0
    while rounds == 0 or time.monotonic() - begun < arguments.duration:
        print(f"=== soak: round {rounds + 1}, SEED={seed}", flush=True)
        command = [sys.executable, "-m", "pytest", "-m", "soak", f"--hypothesis-seed={seed}"]
        variables = {"CYKAFKA_TEST_SOAK": "1", "CYKAFKA_TEST_SEED": str(seed)}
        done = subprocess.run(
            [*command, *pytest_arguments], env={**os.environ, **variables}, check=False
        )
        if done.returncode != 0:
            failed += 1
            print(f"=== soak: failed with SEED={seed}", flush=True)
        rounds += 1
        seed += 1
    took = time.monotonic() - begun
    print(f"=== soak: {rounds} rounds in {took:.0f} s, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
