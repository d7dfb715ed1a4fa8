"""Spark sessions, the interleaved rounds, and the planning case, which needs no Spark."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from _brokers import RealBroker
from _figures import Result
from _floor import BenchmarkError
from _spark_plan import plan_ms
from _spark_suite import (
    BASE,
    KEY_SIZE,
    NEW_TOPIC,
    SESSIONS,
    VALUE_SIZE,
    WARM_UPS,
    Case,
    Contender,
    Place,
)
from cykafka import Producer
from cykafka.testing._java import Jars

HERE = Path(__file__).parent
CONNECTOR = Jars(
    "Spark's Kafka connector",
    HERE.parent / "tests" / "spark" / "jvm_connector" / "pom.xml",
    "spark-sql-kafka",
    "spark-sql-kafka-*.jar",
)
CHUNK = 100_000


class ContenderError(Exception):
    """A contender failed. The first line of the text is a summary."""


def _paths() -> list[str]:
    # Spark's Python workers import the empty source from here. The rest may be another cykafka.
    return [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]


class Session:
    """A Spark session in a separate process.

    Parameters
    ----------
    settings : dict of str to str
    """

    def __init__(self, settings: dict[str, str]) -> None:
        jars = ",".join(sorted(map(str, CONNECTOR.fetch().glob("*.jar"))))
        self._process = subprocess.Popen(
            [
                sys.executable,
                HERE / "_spark_session.py",
                json.dumps({**settings, "spark.jars": jars}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_paths())},
        )
        self.version = self._answer()["spark"]

    def do(self, command: dict[str, Any]) -> dict[str, Any]:
        """Run a command in the session. Returns its measurements."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise ContenderError(answer["error"])
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError(f"a Spark session ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=60)


class Sessions:
    """The sessions by name. A context manager."""

    def __init__(self, names: Iterable[str]) -> None:
        with ExitStack() as stack:
            self._by_name: dict[str, Session] = {}
            for name in sorted(set(names) & set(SESSIONS)):
                self._by_name[name] = Session({**BASE, **SESSIONS[name]})
                stack.callback(self._by_name[name].close)
            self._closing = stack.pop_all()
        from importlib.metadata import version

        spark = {session.version for session in self._by_name.values()} or {version("pyspark")}
        connector = next(CONNECTOR.fetch().glob(CONNECTOR.needed)).stem
        self.versions = {
            "Spark": ", ".join(spark),
            "cykafka": version("cykafka"),
            "JVM connector": connector,
        }

    def __getitem__(self, name: str) -> Session:
        return self._by_name[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.close()


def fill(broker: RealBroker, topic: str, partitions: int, rows: int) -> None:
    """Send records to the partitions in turns, in the largest possible batches."""
    broker.create(topic, partitions)
    dice = np.random.default_rng(20)
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "linger.ms": 100,
        "queue.buffering.max.messages": 1_000_000,
    }
    with Producer(config) as producer:
        done = 0
        while done < rows:
            count = min(CHUNK, rows - done)
            numbers = np.arange(done, done + count)
            noise = dice.integers(32, 127, (count, VALUE_SIZE), np.uint8).tobytes()
            producer.publish(
                topic,
                [noise[at : at + VALUE_SIZE] for at in range(0, len(noise), VALUE_SIZE)],
                keys=[f"{number:0{KEY_SIZE}d}".encode() for number in numbers],
                partitions=(numbers % partitions).astype(np.int32),
            ).wait()
            done += count
    found = broker.end_offsets(topic, partitions)
    if found != rows:
        raise BenchmarkError(f"{topic}: expected {rows} records, got {found}")


@dataclass
class Measured:
    """The results, and the reasons of missing ones, by case, then by contender."""

    rows: dict[str, dict[str, list[Result]]]
    missing: dict[str, dict[str, str]]


def run_rounds(
    cases: list[Case],
    sessions: Sessions,
    broker: RealBroker,
    place: Place,
    rounds: int,
    progress: Callable[[str], None],
    done: Callable[[Measured], None] = lambda _: None,
) -> Measured:
    """Run every contender of every case once a round, one at a time, in shuffled order.

    WARM_UPS unmeasured rounds come first, in which Java compiles hot code, loads classes and
    starts workers. After each measured round, `done` gets all results so far.
    """
    measured = Measured(
        {case.name: {each.name: [] for each in case.contenders} for case in cases},
        {case.name: {} for case in cases},
    )
    total = sum(len(case.contenders) for case in cases) * (WARM_UPS + rounds)
    count = 0
    start = time.monotonic()
    for number in range(1 - WARM_UPS, rounds + 1):
        for case in random.sample(cases, len(cases)):
            rows, missing = measured.rows[case.name], measured.missing[case.name]
            for contender in random.sample(case.contenders, len(case.contenders)):
                count += 1
                if contender.name in missing:
                    continue
                left = (time.monotonic() - start) / count * (total - count + 1) / 60
                which = f"round {number}/{rounds}" if number > 0 else "warming up"
                progress(
                    f"[{count}/{total}, {left:.0f} min] {which}: {case.name}: {contender.name}"
                )
                try:
                    result = run(contender, sessions, broker, place, case.partitions)
                except ContenderError as error:
                    missing[contender.name] = f"failed: {str(error).splitlines()[0][:200]}"
                    rows[contender.name] = []
                    progress(f"{case.name}: {contender.name} failed: {error}\n")
                else:
                    if number > 0:
                        rows[contender.name].append(result)
        if number > 0:
            done(measured)
    return measured


def run(
    contender: Contender, sessions: Sessions, broker: RealBroker, place: Place, partitions: int
) -> Result:
    """Run one command and check that it did all its work."""
    command = contender.command(place)
    if command["do"] == "plan":
        return plan_ms(command["kind"], command["partitions"])
    text = json.dumps(command)
    writes = NEW_TOPIC in text
    with broker.fresh("bench-spark-sink", partitions) if writes else nullcontext("") as topic:
        command = json.loads(text.replace(NEW_TOPIC, topic))
        answer = sessions[contender.session].do(command)
        if writes and (arrived := broker.end_offsets(topic, partitions)) != place.rows:
            raise ContenderError(f"expected {place.rows} records in the topic, got {arrived}")
    if answer.setdefault("rows", place.rows) != place.rows:
        raise ContenderError(f"expected {place.rows} rows, read {answer['rows']}")
    return answer
