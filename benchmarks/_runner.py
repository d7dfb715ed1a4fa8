"""The interleaved rounds: each contender of each case in a fresh process."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from _brokers import Broker
from _figures import Result
from _floor import HERE, BenchmarkError, Library
from _model import C_PEER, MODULES, PEER, PUBLISHED, SUBJECT, C, Case, Contender, Rows, Shape
from _published import VERSION, find_published
from clients._section import CHUNK

CASE_TIMEOUT = 600
"""Seconds after which a process is given up."""
RECORD_OVERHEAD = 10
"""Bytes of a record in a batch besides what it carries, about."""
KEYED_OVERHEAD = 60
"""Bytes of a key and two headers, about."""


@dataclass(frozen=True)
class Client:
    """Where a contender's client comes from.

    Attributes
    ----------
    missing : str
        Why it cannot run; empty if it can.
    library : Library or None
        The librdkafka it must report.
    programs : Path or None
        Of a floor: the folder of the C programs.
    """

    version: str = ""
    module: str = ""
    missing: str = ""
    library: Library | None = None
    programs: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)


def find_client(name: str, module: str) -> Client:
    """A Python client without a library of ours to compare with, or why it is missing."""
    if importlib.util.find_spec(module) is None:
        return Client(missing="not installed")
    distribution = {"kafka": "kafka-python"}.get(module, module)
    return Client(importlib.metadata.version(distribution), module)


@dataclass(frozen=True)
class Amounts:
    """How much work a case is.

    Attributes
    ----------
    messages : int
        Of a publishing process, at 100 B.
    bytes : int
        Most that such a process publishes: larger records are fewer.
    exchanges : int
        Of the cases that send one at a time.
    memory_messages : int
        Of the memory case.
    partition_bytes : int
        Preloaded in each of many partitions; a topic of one partition gets as much as all these.
    """

    messages: int
    exchanges: int
    memory_messages: int
    partition_bytes: float
    bytes: int = 256 * 2**20


@dataclass(frozen=True)
class Work:
    """How much a process does: the numbers of its command line."""

    messages: int
    value_size: int
    partitions: int


def preloaded(shape: Shape, many: int, amounts: Amounts) -> int:
    """Records in each partition of a topic to read."""
    overhead = RECORD_OVERHEAD + (KEYED_OVERHEAD if shape.keyed else 0)
    in_topic = many * amounts.partition_bytes / (shape.value_size + overhead)
    return max(int(in_topic / shape.partitions), 1)


def plan(case: Case, contender: Contender, many: int, amounts: Amounts) -> Work:
    """A contender's part of a case."""
    shape, share = case.shape, contender.share
    if case.kind.reads:
        in_partition = preloaded(shape, many, amounts)
        if shape.partitions == 1:
            return Work(max(int(in_partition * share), 1), shape.value_size, 1)
        # Whole partitions, so that what was fetched is what is counted.
        partitions = max(round(shape.partitions * share), 1)
        return Work(in_partition * partitions, shape.value_size, partitions)
    if case.kind.measure == "exchanges":
        return Work(max(round(amounts.exchanges * share), 1), shape.value_size, shape.partitions)
    messages = amounts.memory_messages
    if case.kind.measure == "messages":
        messages = min(amounts.messages, amounts.bytes // shape.value_size)
    chunks = max(round(messages * share / CHUNK), 1)
    return Work(chunks * CHUNK, shape.value_size, shape.partitions)


def command(contender: Contender, client: Client) -> list[str]:
    if client.programs is not None:
        program, mode = contender.loop.split(":")
        return [str(client.programs / program), mode]
    return [sys.executable, str(HERE / "_client.py"), contender.loop, client.module]


def reason_to_miss(contender: Contender, client: Client, broker: Broker) -> str:
    if broker.name not in contender.brokers:
        return f"not on the {broker.name} broker"
    return client.missing


class ContenderError(Exception):
    """A contender did not do its work.

    Parameters
    ----------
    reason : str
        One line.
    details : str
        What the process said.
    """

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.details = details


def run(
    case: Case, contender: Contender, client: Client, broker: Broker, topic: str, work: Work
) -> Result:
    """One fresh process; what it measured."""
    reads = case.kind.reads
    given = nullcontext(topic) if reads else broker.fresh(topic, work.partitions)
    with given as name:
        config = {"bootstrap.servers": broker.bootstrap_servers, **case.kind.config}
        before = 0 if reads else broker.end_offsets(name, work.partitions)
        try:
            done = subprocess.run(
                [
                    *command(contender, client),
                    name,
                    *(str(n) for n in (work.messages, work.value_size, work.partitions)),
                    *(f"{key}={value}" for key, value in config.items()),
                ],
                capture_output=True,
                text=True,
                timeout=CASE_TIMEOUT,
                env={**os.environ, **client.environment},
            )
        except subprocess.TimeoutExpired:
            raise ContenderError(f"not done in {CASE_TIMEOUT} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise ContenderError(said[-1], done.stderr)
        result = json.loads(done.stdout)
        version = result.pop("librdkafka", "")
        if client.library is not None and version != client.library.version:
            expected = client.library.version
            raise ContenderError(f"ran on librdkafka {version}, not {expected}")
        if not reads:
            arrived = broker.end_offsets(name, work.partitions) - before
            if arrived != result["produced"]:
                raise ContenderError(f"{arrived} records arrived, not {result['produced']}")
    result["cpu_us"] = (result["cpu_user"] + result["cpu_sys"]) * 1e6 / result["messages"]
    return result


@dataclass
class Measured:
    """What the rounds gave: by case, then by contender."""

    rows: dict[str, Rows]
    missing: dict[str, dict[str, str]]
    """Why a contender of a case has no results."""


def run_rounds(
    cases: Iterable[Case],
    clients: dict[str, Client],
    broker: Broker,
    topics: dict[str, str],
    many: int,
    amounts: Amounts,
    rounds: int,
    progress: Callable[[str], None],
) -> Measured:
    """Every contender does every case once a round, one at a time, in shuffled order.

    What disturbs the machine for a while then disturbs all of them, and a ratio is made of
    numbers measured within seconds of each other. A contender that fails is left out of its
    case from then on, and the report says why.
    """
    cases = list(cases)
    measured = Measured({}, {})
    for case in cases:
        measured.rows[case.name] = {c.name: [] for c in case.kind.contenders}
        measured.missing[case.name] = {
            c.name: reason
            for c in case.kind.contenders
            if (reason := reason_to_miss(c, clients[c.client], broker))
        }
    total = sum(len(case.kind.contenders) * min(rounds, case.kind.most_rounds) for case in cases)
    count = 0
    start = time.monotonic()
    for number in range(1, rounds + 1):
        for case in random.sample(cases, len(cases)):
            if number > case.kind.most_rounds:
                continue
            rows, missing = measured.rows[case.name], measured.missing[case.name]
            for contender in random.sample(case.kind.contenders, len(case.kind.contenders)):
                count += 1
                if contender.name in missing:
                    continue
                left = (time.monotonic() - start) / count * (total - count + 1) / 60
                progress(
                    f"[{count}/{total}, {left:.0f} min] {broker.name}, round {number}/{rounds}: "
                    f"{case.name}: {contender.name}"
                )
                client = clients[contender.client]
                work = plan(case, contender, many, amounts)
                try:
                    result = run(case, contender, client, broker, topics[case.name], work)
                except ContenderError as error:
                    missing[contender.name] = f"failed: {error}"
                    rows[contender.name] = []
                    progress(f"{case.name}: {contender.name} failed: {error.details or error}\n")
                else:
                    rows[contender.name].append(result)
    return measured


def find_clients(
    names: set[str],
    subject: str,
    subject_library: Library,
    floors: dict[str, Path],
    peer_library: Library | str,
) -> dict[str, Client]:
    """The clients by name; those that are missing say why."""
    found = {
        C: Client(subject_library.version, library=subject_library, programs=floors[C]),
        SUBJECT: Client(
            f"{subject_library.module_version} on librdkafka {subject_library.version}",
            subject,
            library=subject_library,
        ),
    }
    if isinstance(peer_library, Library):
        found[C_PEER] = Client(peer_library.version, library=peer_library, programs=floors[C_PEER])
        found[PEER] = Client(
            f"{peer_library.module_version} on librdkafka {peer_library.version}",
            MODULES[PEER],
            library=peer_library,
        )
    else:
        found[C_PEER] = found[PEER] = found[PUBLISHED] = Client(missing=peer_library)
    if PUBLISHED in names - set(found):
        folder, missing = find_published()
        found[PUBLISHED] = Client(missing=missing)
        if folder is not None:
            environment = {"PYTHONPATH": str(folder)}
            found[PUBLISHED] = replace(
                found[PEER], version=f"{VERSION} on {PEER}", environment=environment
            )
    for name in names - set(found):
        found[name] = find_client(name, MODULES[name])
    return found


def preload(programs: Path, broker: Broker, topic: str, shape: Shape, in_partition: int) -> None:
    """Fill the partitions to read, and the small topic that readers warm up on."""
    mode = "preload_keyed" if shape.keyed else "preload"
    warm_size = min(shape.value_size, 100)
    for name, messages, size, partitions in (
        (f"{topic}-warm", CHUNK, warm_size, 1),
        (topic, in_partition, shape.value_size, shape.partitions),
    ):
        broker.create(name, partitions)
        broker.end_offsets(name, partitions)
        # A long linger fills the batches: the readers then fetch the same ones every time.
        config = [
            f"bootstrap.servers={broker.bootstrap_servers}",
            "linger.ms=1000",
            "queue.buffering.max.messages=10000000",
        ]
        done = subprocess.run(
            [programs / "produce", mode, name, *map(str, (messages, size, partitions)), *config],
            capture_output=True,
            text=True,
            timeout=CASE_TIMEOUT,
        )
        if done.returncode:
            raise BenchmarkError(f"preloading {name}: {done.stderr}")
