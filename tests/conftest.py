"""Fixtures of all tests: the module under test, scripts in their own processes, and clients.

Clients are closed after each test. They use the fixture `cluster`, which each folder with a broker
defines.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Read, RunScript, Unique, WaitUntil
from live import live_before
from machine import WAIT_S
from repeated import examples

if TYPE_CHECKING:
    from cykafka import Consumer, Message, Producer
    from cykafka.testing import KafkaCluster

# Examples have no deadline, because on a busy machine any example may take long.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=examples(100))
hypothesis.settings.load_profile("untimed")

pytest_plugins = ["event_loops", "last_words", "run_order"]


# Tests of behavior shared with confluent_kafka can run against it too. So the reference itself
# confirms their expectations.
PEER = os.environ.get("CYKAFKA_TEST_PEER")
MODULE = PEER or "cykafka"

PRELUDE = f"import {MODULE} as kafka\n"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ours: what cykafka does better or beside the peer; skipped for the peer"
    )
    config.addinivalue_line("markers", "alone: needs the machine to itself; see run_order.py")
    if folder := os.environ.get("CYKAFKA_TEST_PIDS"):  # see tests/memory/sanitized.py
        Path(folder, str(os.getpid())).touch()
    config.addinivalue_line(
        "markers", "process_memory: looks at the size of a process, which sanitizers change"
    )
    config.addinivalue_line("markers", "soak: throws dice, in `make soak` more often")


@pytest.hookimpl(tryfirst=True)  # before pytest selects tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.soak)
    if PEER:
        skip = pytest.mark.skip(reason=f"{PEER} does not behave so")
        for item in items:
            if item.get_closest_marker("ours"):
                item.add_marker(skip)


def pytest_report_header() -> str:
    return f"module under test: {MODULE}"


def _enable_interrupts() -> None:
    # A background job of a shell ignores SIGINT. Children that test Ctrl-C would inherit this.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_enable_interrupts()


@pytest.fixture(scope="session")
def kafka() -> ModuleType:
    """The module under test: cykafka, or the one that CYKAFKA_TEST_PEER names."""
    return importlib.import_module(MODULE)


@pytest.fixture(scope="session")
def script_command() -> Callable[..., list[str]]:
    """Make a command that runs a script with `kafka` imported and a traceback on a crash.

    The arguments after the source arrive as `sys.argv[1:]`.
    """

    def command(source: str, *args: str) -> list[str]:
        code = PRELUDE + textwrap.dedent(source)
        return [sys.executable, "-X", "faulthandler", "-c", code, *args]

    return command


@pytest.fixture(scope="session")
def run_script(
    script_command: Callable[..., list[str]],
) -> RunScript:
    """Run a script and return the finished process; a hang fails after `timeout` s."""

    def run(source: str, *args: str, timeout: float = WAIT_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            script_command(source, *args),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def no_handle_left(kafka: ModuleType) -> Iterator[None]:
    """Fail the module that leaves a client handle alive."""
    if kafka.__name__ != "cykafka":
        yield
        return
    from cykafka.testing import live_handles

    before = live_before()
    yield
    gc.collect()
    # A thread may still be destroying a client that was closed without waiting for it.
    deadline = time.monotonic() + WAIT_S
    while live_handles() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert live_handles() == before


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Make names that no other test uses."""
    numbers = itertools.count(1)
    run = os.urandom(3).hex()  # a broker may remember an earlier run
    return lambda prefix: f"{prefix}-{run}-{next(numbers)}"


@pytest.fixture(scope="session")
def own_cluster(request: pytest.FixtureRequest) -> Iterator[Callable[..., KafkaCluster]]:
    """Make clusters with KafkaCluster's arguments, for the whole run."""
    from cykafka.testing import _provide
    from cykafka.testing.plugin import _started

    with contextlib.ExitStack() as clusters:
        yield lambda **options: clusters.enter_context(
            _started(request, _provide.own_cluster(**options))
        )


@pytest.fixture(scope="session")
def secured(own_cluster: Callable[..., KafkaCluster]) -> Iterator[KafkaCluster]:
    """The one cluster for tests of logins, certificates and rights; topics are not auto-created.

    Its tests run one after another. A test that grants a cluster-wide right revokes it.
    """
    cluster = own_cluster(
        listeners=(
            "tls",
            "mtls",
            "sasl_plain",
            "sasl_scram_sha_256",
            "sasl_scram_sha_512",
            "sasl_oauthbearer",
            "sasl_gssapi",
            "sasl_scram_sha_256_tls",
            "sasl_scram_sha_512_tls",
            "sasl_gssapi_tls",
        ),
        users=("alice", "bob", "mallory", "wanda"),
        properties={
            "auto.create.topics.enable": False,
            # The interval at which brokers look for late transactions, ms.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
        },
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.client_environment.items():
            patch.setenv(name, value)
        yield cluster


@pytest.fixture(scope="session")
def tidy(own_cluster: Callable[..., KafkaCluster]) -> KafkaCluster:
    """A broker that often deletes and compacts, and does not auto-create topics.

    It has secured listeners for the tests of Spark's own Kafka connector.
    """
    return own_cluster(
        listeners=("mtls", "sasl_plain_tls"),
        properties={
            "log.initial.task.delay.ms": 100,
            "log.retention.check.interval.ms": 200,
            "log.cleaner.backoff.ms": 100,
            "auto.create.topics.enable": False,
        },
    )


@pytest.fixture
def topic(cluster: Any, unique: Unique) -> str:
    """A fresh topic of four partitions."""
    name = unique("topic")
    cluster.create_topic(name, 4)
    return name


@pytest.fixture
def make_producer(kafka: ModuleType, cluster: Any) -> Iterator[MakeProducer]:
    """Make producers for the cluster without linger, and purge and close them at the end."""
    made = []

    def make(config: dict[str, Any] | None = None, **kwargs: Any) -> Producer:
        base = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
        producer: Producer = kafka.Producer({**base, **(config or {})}, **kwargs)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        # Queued messages must not delay the next test. A closed producer has none.
        with contextlib.suppress(RuntimeError):
            producer.purge()
        producer.close()


@pytest.fixture
def make_transactional(make_producer: MakeProducer, unique: Unique) -> MakeProducer:
    """Make producers that each have their own ``transactional.id``."""

    def make(**config: Any) -> Producer:
        return make_producer({"transactional.id": unique("transaction"), **config})

    return make


@pytest.fixture
def make_consumer(kafka: ModuleType, cluster: Any, unique: Unique) -> Iterator[MakeConsumer]:
    """Make consumers, each in its own group, that read from the start and commit nothing."""
    made = []

    def make(config: dict[str, Any] | None = None, **kwargs: Any) -> Consumer:
        base = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": unique("group"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # An idle fetch would delay seeks and watermark queries for half a second.
            "fetch.wait.max.ms": 20,
        }
        consumer: Consumer = kafka.Consumer({**base, **(config or {})}, **kwargs)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture
def producer(make_producer: MakeProducer) -> Producer:
    return make_producer()


@pytest.fixture
def consumer(make_consumer: MakeConsumer) -> Consumer:
    return make_consumer()


@pytest.fixture
def fill(make_producer: MakeProducer) -> Fill:
    """Produce the values `b"0"`, `b"1"`, ... to one partition and wait for their delivery."""

    def fill(topic: str, count: int = 10, partition: int = 0) -> None:
        producer = make_producer()
        errors: list[Any] = []
        for number in range(count):
            producer.produce(
                topic,
                str(number),
                key=f"key-{number}",
                partition=partition,
                on_delivery=lambda error, _: errors.append(error),
            )
        assert producer.flush(WAIT_S) == 0
        assert errors == [None] * count

    return fill


@pytest.fixture
def wait_until() -> WaitUntil:
    """Serve a client until a condition is true; fail after the timeout.

    Without a client to serve, look again every 0.05 s.
    """

    def wait(
        happened: Callable[[], Any],
        serve: Callable[[], Any] = lambda: time.sleep(0.05),
        timeout: float = WAIT_S,
    ) -> None:
        deadline = time.monotonic() + timeout
        while not happened():
            assert time.monotonic() < deadline, f"the condition is still false after {timeout} s"
            serve()

    return wait


@pytest.fixture
def read(wait_until: WaitUntil) -> Read:
    """Read that many messages; fail on an error message or if they do not arrive."""

    def read(consumer: Consumer, count: int) -> list[Message]:
        messages: list[Any] = []
        wait_until(
            lambda: len(messages) >= count,
            lambda: messages.extend(consumer.consume(count - len(messages), timeout=0.5)),
        )
        assert [message.error() for message in messages] == [None] * count
        return messages

    return read
