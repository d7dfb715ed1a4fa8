"""Cases, participants, the interleaved rounds, and what is computed from them."""

from __future__ import annotations

import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from _floor import HERE, BenchmarkError, Library

Result = dict[str, float]
"""What a process measured: seconds, kB, and the durations of a message in us."""

CASE_TIMEOUT = 300
"""Seconds after which a process is given up."""


@dataclass(frozen=True)
class Case:
    """One kind of work, done by every participant in each round.

    Attributes
    ----------
    program, floor_mode
        The C program and its mode.
    overhead
        Whether the target is for the CPU above the floor, or for all that a user pays (CPU and
        latency).
    target
        Most that the ratio of the subject to the peer may be.
    """

    name: str
    program: str
    floor_mode: str
    topic: str
    target: float
    config: dict[str, str]
    overhead: bool = True


PRODUCE = {"queue.buffering.max.messages": "1000000"}
FLUSH = {"linger.ms": "0"}
# With the default back-off a fast reader stalls for a second whenever its queue is full.
CONSUME = {
    "group.id": "bench",
    "enable.auto.commit": "false",
    "fetch.queue.backoff.ms": "5",
    "queued.min.messages": "1000000",
}

CASES = [
    Case("produce", "produce", "produce", "produce", 0.5, PRODUCE),
    Case("produce_on_delivery", "produce", "produce", "produce", 0.25, PRODUCE),
    Case("consume", "consume", "consume", "consume", 0.5, CONSUME),
    Case("poll", "consume", "poll", "consume", 0.5, CONSUME),
    Case("flush", "produce", "flush", "flush", 1.0, FLUSH, overhead=False),
    Case("flush_on_delivery", "produce", "flush", "flush", 1.0, FLUSH, overhead=False),
]


@dataclass(frozen=True)
class Participant:
    """Who runs a case: a client module or, without one, the floor programs in ``programs``."""

    name: str
    library: Library
    module: str | None = None
    programs: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, case: Case) -> list[str]:
        if self.programs is not None:
            return [str(self.programs / case.program), case.floor_mode]
        return [sys.executable, str(HERE / "_cases.py"), str(self.module), case.name]


@dataclass(frozen=True)
class Work:
    """How much a case does: the arguments that every participant gets."""

    topic: str
    messages: int
    value_size: int
    partitions: int


def run(participant: Participant, case: Case, work: Work, bootstrap_servers: str) -> Result:
    """One fresh process; what it measured."""
    config = {"bootstrap.servers": bootstrap_servers, **case.config}
    command = [
        *participant.command(case),
        work.topic,
        *(str(n) for n in (work.messages, work.value_size, work.partitions)),
        *(f"{key}={value}" for key, value in config.items()),
    ]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=CASE_TIMEOUT,
            env={**os.environ, **participant.environment},
        )
    except subprocess.TimeoutExpired:
        raise BenchmarkError(
            f"{case.name} by {participant.name}: not done in {CASE_TIMEOUT} s"
        ) from None
    if done.returncode:
        raise BenchmarkError(
            f"{case.name} by {participant.name}: status {done.returncode}\n{done.stderr}"
        )
    result: Result = json.loads(done.stdout)
    version = str(result.pop("librdkafka"))
    if version != participant.library.version:
        raise BenchmarkError(
            f"{participant.name} ran on librdkafka {version}, not {participant.library.version}"
        )
    result["cpu_us"] = (result["cpu_user"] + result["cpu_sys"]) * 1e6 / result["messages"]
    return result


Measured = dict[str, dict[str, list[Result]]]
"""By case, by participant: a result per round."""


def run_rounds(
    cases: Iterable[Case],
    participants: list[Participant],
    works: dict[str, Work],
    bootstrap_servers: str,
    rounds: int,
    progress: Callable[[str], None],
) -> Measured:
    """Every participant does every case once a round, one at a time, in shuffled order.

    What disturbs the machine for a while then disturbs all of them, and a ratio is made of
    numbers measured within seconds of each other.
    """
    cases = list(cases)
    measured: Measured = {case.name: {p.name: [] for p in participants} for case in cases}
    total = rounds * len(cases) * len(participants)
    count = 0
    for number in range(1, rounds + 1):
        for case in random.sample(cases, len(cases)):
            for participant in random.sample(participants, len(participants)):
                count += 1
                progress(
                    f"[{count}/{total}] round {number}/{rounds}: {case.name} by {participant.name}"
                )
                result = run(participant, case, works[case.topic], bootstrap_servers)
                measured[case.name][participant.name].append(result)
    return measured


@dataclass(frozen=True)
class Spread:
    """Median, quartiles and extremes of the rounds."""

    median: float
    lower: float
    upper: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        known = sorted(value for value in values if not math.isnan(value))
        if not known:
            return cls(*[math.nan] * 5)
        if len(known) == 1:
            return cls(*known * 5)
        lower, median, upper = statistics.quantiles(known, n=4, method="inclusive")
        return cls(median, lower, upper, known[0], known[-1])


def column(results: list[Result], key: str) -> list[float]:
    return [result[key] for result in results]


def overheads(client: list[Result], floor: list[Result]) -> list[float]:
    """CPU per message above the floor, in us, round by round."""
    pairs = zip(column(client, "cpu_us"), column(floor, "cpu_us"), strict=True)
    return [own - least for own, least in pairs]


def ratios(subject: list[float], peer: list[float]) -> list[float]:
    """Paired ratios, round by round; nan where the peer's number is lost in the noise."""
    return [a / b if b > 0 else math.nan for a, b in zip(subject, peer, strict=True)]


def verdict(ratio: Spread, target: float) -> str:
    """Judged by the median; says so when the quartiles lie on both sides of the target."""
    if math.isnan(ratio.median):
        return "unknown: the peer's overhead is lost in the noise"
    met = "met" if ratio.median <= target else "MISSED"
    close = ratio.lower <= target < ratio.upper
    return f"{met}, within the noise" if close else met
