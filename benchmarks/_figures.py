"""Statistics over the rounds: spreads, paired ratios and verdicts."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

Result = dict[str, float]
"""The measurements of a process: times in s, memory in kB, durations of a message in us."""

LATENCIES = ("p50_us", "p99_us", "p99_9_us")


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


def percentiles(latencies: list[float]) -> dict[str, float]:
    """p50, p99 and p99.9 in us of durations in s, as the C programs compute them."""
    ordered = sorted(latencies)
    ranks = (len(ordered) * share // 1000 for share in (500, 990, 999))
    return {key: ordered[rank] * 1e6 for key, rank in zip(LATENCIES, ranks, strict=True)}


def differences(own: list[float], other: list[float]) -> list[float]:
    """Paired differences, round by round."""
    return [a - b for a, b in zip(own, other, strict=True)]


def overheads(client: list[Result], floor: list[Result]) -> list[float]:
    """CPU per message above the floor, in us, round by round."""
    return differences(column(client, "cpu_us"), column(floor, "cpu_us"))


def ratios(own: list[float], other: list[float]) -> list[float]:
    """Paired ratios, round by round; nan where the other number is zero or less (noise)."""
    return [a / b if b > 0 else math.nan for a, b in zip(own, other, strict=True)]


def verdict(figure: Spread, limit: float) -> str:
    """Judge the median. "Within the noise": the limit lies between the quartiles."""
    if math.isnan(figure.median):
        return "unknown: the number to compare with is below the noise"
    met = "met" if figure.median <= limit else "MISSED"
    close = figure.lower <= limit < figure.upper
    return f"{met}, within the noise" if close else met
