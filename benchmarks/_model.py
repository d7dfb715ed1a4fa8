"""The parts of a case: contenders, shapes of records, targets."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from _figures import Result, column, differences, overheads, ratios

C = "C"
C_PEER = "C (peer's)"
SUBJECT = "cykafka"
SAME = "cykafka (peer's)"
"""The subject on the peer's librdkafka."""
BEFORE = "cykafka (before)"
"""Another build of the subject, for example the last release."""
PEER = "confluent_kafka"
PUBLISHED = "pip-services4-kafka"
"""The published package, which uses the peer."""
MODULES = {
    SUBJECT: "cykafka",
    PEER: "confluent_kafka",
    "aiokafka": "aiokafka",
    "kafka-python": "kafka",
    "kafkarrow": "kafkarrow",
    PUBLISHED: "pip_services4_kafka",
}
"""The module of each Python client."""

BROKERS = ("mock", "real")

Rows = dict[str, list[Result]]
"""The results of a case by contender, one for each round."""


@dataclass(frozen=True)
class Contender:
    """A client or C program that takes part in a case.

    Attributes
    ----------
    client : str
        `C`, `C_PEER` or a key of `MODULES`.
    how : str
        The calls that it makes, for the tables.
    loop : str
        ``file:function`` in ``clients/``, or ``program:mode`` in ``floor/``.
    share : float
        The part of the messages that it processes. Slow clients process fewer; the tables compare
        CPU per message.
    brokers : tuple of str
        The brokers that it runs on.
    """

    client: str
    how: str
    loop: str
    share: float = 1.0
    brokers: tuple[str, ...] = BROKERS

    @property
    def name(self) -> str:
        return f"{self.client} {self.how}"

    @property
    def in_c(self) -> bool:
        return self.client in (C, C_PEER)


@dataclass(frozen=True)
class Target:
    """A figure for each round. Its median may be at most `limit`.

    Attributes
    ----------
    needs : tuple of Contender
        The figure needs the results of all of them.
    """

    text: str
    limit: float
    needs: tuple[Contender, ...]
    values: Callable[[Rows], list[float]]
    unit: str = ""
    digits: int = 2
    judged: bool = True


@dataclass(frozen=True)
class Shape:
    """The shape of a case's records, and the topic's number of partitions.

    Attributes
    ----------
    times : float
        How many times as many bytes to read, in a case whose start would hide the rate.
    """

    value_size: int
    partitions: int
    keyed: bool = False
    times: float = 1

    def __str__(self) -> str:
        keyed = ", key and headers" if self.keyed else ""
        plural = "" if self.partitions == 1 else "s"
        times = "" if self.times == 1 else f", {self.times:g} times the bytes"
        return f"{self.value_size} B{keyed}, {self.partitions} partition{plural}{times}"


@dataclass(frozen=True)
class Kind:
    """One kind of work, done by every contender in each round.

    Attributes
    ----------
    reads : bool
        True: it reads a topic filled before. False: it publishes to a topic.
    measure : str
        The amount of work: ``"messages"``, ``"exchanges"`` (one at a time) or ``"memory"``.
    contenders : tuple of Contender
        The subject comes first.
    floor, peer_floor : Contender
        The C program to compare with, on the subject's and on the peer's librdkafka.
    shapes : tuple of Shape
        The default shapes, the simplest first.
    brokers : tuple of str
        The brokers that it runs on.
    in_share_group : bool
        Each process reads the topic as the only member of a new share group.
    most_rounds : int
        The maximum of rounds, for a kind that takes long and varies little.
    """

    name: str
    title: str
    config: dict[str, str]
    contenders: tuple[Contender, ...]
    floor: Contender
    peer_floor: Contender
    targets: tuple[Target, ...]
    shapes: tuple[Shape, ...]
    reads: bool = False
    measure: str = "messages"
    brokers: tuple[str, ...] = BROKERS
    in_share_group: bool = False
    most_rounds: int = 1_000

    @property
    def subject(self) -> Contender:
        return self.contenders[0]

    def floor_of(self, contender: Contender) -> Contender:
        """The C program on the librdkafka that the contender uses."""
        on_peers = contender.client in (PEER, C_PEER, SAME, PUBLISHED)
        return self.peer_floor if on_peers else self.floor


@dataclass(frozen=True)
class Case:
    """A kind of work on records of one shape."""

    kind: Kind
    shape: Shape

    @property
    def name(self) -> str:
        return f"{self.kind.name}, {self.shape}"


# --- targets ------------------------------------------------------------------------------


def key_ratio(
    own: Contender, other: Contender, limit: float, key: str = "cpu_us", text: str = "CPU"
) -> Target:
    def values(rows: Rows) -> list[float]:
        return ratios(column(rows[own.name], key), column(rows[other.name], key))

    return Target(f"{text} to {other.name}", limit, (own, other), values)


def overhead_ratio(
    own: Contender,
    floor: Contender,
    peer: Contender,
    peer_floor: Contender,
    limit: float,
    judged: bool = True,
) -> Target:
    """The ratio of two overheads. Each is a client's CPU minus that of its C program."""

    def values(rows: Rows) -> list[float]:
        return ratios(
            overheads(rows[own.name], rows[floor.name]),
            overheads(rows[peer.name], rows[peer_floor.name]),
        )

    where = f", both above {floor.name}" if floor == peer_floor else ""
    text = f"overhead of {own.client} to {peer.name}{where}"
    return Target(text, limit, (own, floor, peer, peer_floor), values, judged=judged)


def p50_difference(own: Contender, other: Contender, limit: float) -> Target:
    def values(rows: Rows) -> list[float]:
        return differences(column(rows[own.name], "p50_us"), column(rows[other.name], "p50_us"))

    return Target(f"p50 above {other.name}", limit, (own, other), values, " us", digits=0)


def cpu_above(
    own: Contender, floor: Contender, times: float, limit: float, judged: bool = True
) -> Target:
    """CPU of a message minus a multiple of the C program's."""

    def values(rows: Rows) -> list[float]:
        multiples = [times * cost for cost in column(rows[floor.name], "cpu_us")]
        return differences(column(rows[own.name], "cpu_us"), multiples)

    text = f"CPU above {times:g} times {floor.name}"
    return Target(text, limit, (own, floor), values, " us", judged=judged)


def peak_ratio(
    own: Contender, floor: Contender, limit: float, held: int = 0, growth: bool = False
) -> Target:
    """Peak memory minus ``held`` bytes a record; with ``growth``, also minus the start value.

    The growth has no verdict. It excludes the interpreter and its imports.
    """

    def peaks(results: list[Result], bytes_held: int) -> list[float]:
        return [
            r["peak_rss_kb"]
            - (r["start_rss_kb"] if growth else 0)
            - bytes_held * r["messages"] / 1024
            for r in results
        ]

    def values(rows: Rows) -> list[float]:
        return ratios(peaks(rows[own.name], held), peaks(rows[floor.name], 0))

    less = f" less {held} B a record" if held else ""
    what = "growth" if growth else "peak"
    text = f"{own.name}: {what}{less} to {floor.name}"
    return Target(text, limit, (own, floor), values, judged=not growth)


def with_same_library(kind: Kind) -> Kind:
    """Add the subject on the peer's librdkafka to a kind."""
    own = replace(kind.subject, client=SAME)
    figures = tuple(
        overhead_ratio(own, kind.peer_floor, contender, kind.peer_floor, math.nan, judged=False)
        for contender in kind.contenders
        if contender.client == PEER
    )
    contenders = (kind.subject, own, *kind.contenders[1:])
    return replace(kind, contenders=contenders, targets=kind.targets + figures)


def with_before(kind: Kind) -> Kind:
    """Add another build of the subject to a kind. The target: it must not cost less."""
    key, text = {
        "exchanges": ("p50_us", "p50"),
        "memory": ("peak_rss_kb", "peak"),
    }.get(kind.measure, ("cpu_us", "CPU"))
    others = {c: replace(c, client=BEFORE) for c in kind.contenders if c.client == SUBJECT}
    figures = tuple(key_ratio(own, other, 1.0, key, text) for own, other in others.items())
    contenders = (kind.subject, *others.values(), *kind.contenders[1:])
    return replace(kind, contenders=contenders, targets=kind.targets + figures)
