"""The interleaved rounds. Each contender of each case runs in a fresh process."""

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
"""The time limit of a process, s."""
RECORD_OVERHEAD = 10
"""The approximate size of a record in a batch without its value, bytes."""
KEYED_OVERHEAD = 60
"""The approximate size of a key and two headers, bytes."""


@dataclass(frozen=True)
class Client:
    """The client of a contender: its module or its C programs.

    Attributes
    ----------
    missing : str
        The reason why it cannot run; empty if it can.
    library : Library or None
        The librdkafka that it must report.
    programs : Path or None
        For a floor: the folder of the C programs.
    """

    version: str = ""
    module: str = ""
    missing: str = ""
    library: Library | None = None
    programs: Path | None = None
    environment: dict[str, str] = field(default_factory=dict)


def find_client(name: str, module: str) -> Client:
    """A Python client without a check of its librdkafka, or the reason why it is missing."""
    if importlib.util.find_spec(module) is None:
        return Client(missing="not installed")
    distribution = {"kafka": "kafka-python"}.get(module, module)
    return Client(importlib.metadata.version(distribution), module)


@dataclass(frozen=True)
class Amounts:
    """The amount of work of a case.

    Attributes
    ----------
    messages : int
        Messages of a publishing process, at 100 B.
    bytes : int
        The most bytes of such a process. It publishes fewer records if they are larger.
    exchanges : int
        Messages in the cases that send one at a time.
    memory_messages : int
        Messages in the memory case.
    partition_bytes : int
        Bytes to preload into each of many partitions, unless the shape says how many times as
        many. A topic with one partition gets their sum.
    """

    messages: int
    exchanges: int
    memory_messages: int
    partition_bytes: float
    bytes: int = 256 * 2**20


@dataclass(frozen=True)
class Work:
    """The amount of work of a process: the numbers of its command line."""

    messages: int
    value_size: int
    partitions: int


def preloaded(shape: Shape, many: int, amounts: Amounts) -> int:
    """The number of records in each partition of a topic to read."""
    overhead = RECORD_OVERHEAD + (KEYED_OVERHEAD if shape.keyed else 0)
    in_topic = many * amounts.partition_bytes * shape.times / (shape.value_size + overhead)
    return max(int(in_topic / shape.partitions), 1)


def plan(case: Case, contender: Contender, many: int, amounts: Amounts) -> Work:
    """The work of a contender in a case."""
    shape, share = case.shape, contender.share
    if case.kind.reads:
        in_partition = preloaded(shape, many, amounts)
        if shape.partitions == 1:
            return Work(max(int(in_partition * share), 1), shape.value_size, 1)
        # Whole partitions, so that a client fetches only records that it counts.
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
        return f"does not run on the {broker.name} broker"
    return client.missing


class ContenderError(Exception):
    """A contender failed.

    Parameters
    ----------
    reason : str
        One line.
    details : str
        The error output of the process.
    """

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.details = details


def run(
    case: Case, contender: Contender, client: Client, broker: Broker, topic: str, work: Work
) -> Result:
    """Run one fresh process. Returns its measurements."""
    reads = case.kind.reads
    given = nullcontext(topic) if reads else broker.fresh(topic, work.partitions)
    with given as name:
        config = {"bootstrap.servers": broker.bootstrap_servers, **case.kind.config}
        if case.kind.in_share_group:
            config["group.id"] = broker.share_group()
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
            raise ContenderError(f"timed out after {CASE_TIMEOUT} s") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
            raise ContenderError(said[-1], done.stderr)
        result = json.loads(done.stdout)
        version = result.pop("librdkafka", "")
        if client.library is not None and version != client.library.version:
            expected = client.library.version
            raise ContenderError(f"expected librdkafka {expected}, got {version}")
        if not reads:
            arrived = broker.end_offsets(name, work.partitions) - before
            if arrived != result["produced"]:
                raise ContenderError(
                    f"expected {result['produced']} new records in the topic, got {arrived}"
                )
    result["cpu_us"] = (result["cpu_user"] + result["cpu_sys"]) * 1e6 / result["messages"]
    result["wall_us"] = result["wall"] * 1e6 / result["messages"]
    return result


@dataclass
class Measured:
    """The results of the rounds, by case, then by contender."""

    rows: dict[str, Rows]
    missing: dict[str, dict[str, str]]
    """The reason why a contender of a case has no results."""


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
    """Run every contender of every case once a round, one at a time, in shuffled order.

    So a disturbance of the machine affects all contenders, and a ratio compares numbers measured
    within seconds of each other. After a failure, a contender no longer runs in its case, and the
    report states the reason.
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
    """The clients by name, also missing ones with the reason."""
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
    """Fill the partitions to read, and the small topic for the readers' warm-up."""
    mode = "preload_keyed" if shape.keyed else "preload"
    warm_size = min(shape.value_size, 100)
    for name, messages, size, partitions in (
        (f"{topic}-warm", CHUNK, warm_size, 1),
        (topic, in_partition, shape.value_size, shape.partitions),
    ):
        broker.create(name, partitions)
        broker.end_offsets(name, partitions)
        # A long linger fills the batches, so that readers fetch the same batches in each run.
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
