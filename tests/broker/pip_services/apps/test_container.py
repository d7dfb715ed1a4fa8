"""A process with a container that YAML configures: it starts, works, and stops on a signal.

It has three queues: one on the shared connection, one with its own connection, and one from the
queue factory. The process writes each handled message to a file and answers on another queue.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixture_types import MakeConsumer, Unique, WaitUntil
from machine import WAIT_S
from pip_services_queues import MakeQueue, envelope
from pip_services_rig import Committed, eventually

pytest.importorskip("pip_services4_container")
pytestmark = [pytest.mark.ours, pytest.mark.timeout(300)]


APP = """
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")
from pip_services4_components.build import Factory
from pip_services4_components.config import IConfigurable
from pip_services4_components.context import Context
from pip_services4_components.refer import Descriptor, IReferenceable
from pip_services4_components.run import IOpenable
from pip_services4_container.container import ProcessContainer
from pip_services4_messaging.queues import IMessageReceiver, MessageEnvelope

from pip_services4_kafka.build import DefaultKafkaFactory


class OrdersReceiver(IConfigurable, IReferenceable, IOpenable, IMessageReceiver):
    def __init__(self):
        self._opened = False
        self._context = Context.from_trace_id("orders")

    def configure(self, config):
        path = config.get_as_string("path")
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._made_name = config.get_as_string("made")

    def set_references(self, references):
        def queue(name):
            return references.get_one_required(
                Descriptor("pip-services", "message-queue", "kafka", name, "1.0")
            )

        factory = references.get_one_required(
            Descriptor("*", "queue-factory", "kafka", "*", "1.0")
        )
        self._made = factory.create_queue(self._made_name)
        self._answers = queue("answers")
        self._queues = [queue("shared"), queue("own"), self._made]

    def is_open(self):
        return self._opened

    def open(self, context):
        self._made.open(context)
        for queue in self._queues:
            queue.begin_listen(context, self)
        self._opened = True

    def receive_message(self, message, queue):
        time.sleep(0.001)
        answer = MessageEnvelope(self._context, "answer", message.get_message_as_string())
        self._answers.send(self._context, answer)
        os.write(self._file, message.message + b"\\n")
        queue.complete(message)

    def close(self, context):
        self._made.close(context)
        self._opened = False


class OrdersFactory(Factory):
    def __init__(self):
        super().__init__()
        self.register_as_type(
            Descriptor("orders", "receiver", "default", "*", "1.0"), OrdersReceiver
        )


container = ProcessContainer("orders", "Handles orders")
container.add_factory(DefaultKafkaFactory())
container.add_factory(OrdersFactory())
container.run()
print("container has run", flush=True)
"""

CONFIG = """
- descriptor: "pip-services:context-info:default:default:1.0"
  name: orders

- descriptor: "pip-services:logger:console:default:1.0"
  level: info

- descriptor: "pip-services:connection:kafka:default:1.0"
  client_id: orders
  connection:
    uri: tcp://{{SERVERS}}
  options:
    connect_timeout: {{CONNECT_TIMEOUT}}
    num_partitions: 4

- descriptor: "pip-services:message-queue:kafka:shared:1.0"
  topic: {{PREFIX}}-shared
  group_id: {{PREFIX}}
  from_beginning: true
  autocommit: {{AUTOCOMMIT}}

- descriptor: "pip-services:message-queue:kafka:own:1.0"
  topic: {{PREFIX}}-own
  group_id: {{PREFIX}}
  from_beginning: true
  autocommit: {{AUTOCOMMIT}}
  read_partitions: 2
  connection:
    host: {{HOST}}
    port: {{PORT}}
  options:
    connect_timeout: {{CONNECT_TIMEOUT}}
    num_partitions: 4

- descriptor: "pip-services:message-queue:kafka:answers:1.0"
  topic: {{PREFIX}}-answers
  group_id: {{PREFIX}}

- descriptor: "pip-services:queue-factory:kafka:default:1.0"
  group_id: {{PREFIX}}
  from_beginning: true
  autocommit: {{AUTOCOMMIT}}

- descriptor: "orders:receiver:default:default:1.0"
  path: {{FILE}}
  made: {{PREFIX}}-made
"""

TOPICS = ("shared", "own", "made")


class App:
    """The process. The names of its topics and its group begin with `prefix`."""

    def __init__(
        self, command: list[str], environment: dict[str, str], prefix: str, folder: Path
    ) -> None:
        self.prefix = prefix
        self._log, self._handled = folder / "said", folder / "handled"
        with self._log.open("ab") as file:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def is_ready(self) -> bool:
        """Whether the process handles SIGTERM already, so that it stops cleanly."""
        assert self.process.poll() is None, self.output()
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (caught,) = (line for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) & 1 << (signal.SIGTERM - 1))

    def stop(self, by: int) -> None:
        """Send a signal, and check that the process stops."""
        self.process.send_signal(by)
        try:
            status = self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # faulthandler prints where it hangs
            self.process.wait()
            pytest.fail(f"the process does not stop: {self.output()}")
        assert status == 0, self.output()

    def handled(self) -> Counter[str]:
        """How often this process and earlier ones handled each message.

        Fails if the process has ended by itself.
        """
        assert not self.process.poll(), self.output()
        if not self._handled.exists():
            return Counter()
        return Counter(self._handled.read_text().split("\n")[:-1])

    def output(self) -> str:
        """The end of the output."""
        return self._log.read_text(errors="replace")[-20000:]


@pytest.fixture
def start_app(cluster: Any, unique: Unique, tmp_path: Path) -> Iterator[Callable[..., App]]:
    """Start the process with the container; a test may do so several times."""
    prefix = unique("orders")
    servers = cluster.bootstrap_servers
    host, port = servers.split(",")[0].rsplit(":", 1)
    config = tmp_path / "config.yml"
    config.write_text(CONFIG)
    started: list[App] = []

    def start(autocommit: bool, **changed: str) -> App:
        environment = {
            "PREFIX": prefix,
            "SERVERS": servers,
            "HOST": host,
            "PORT": port,
            "AUTOCOMMIT": str(autocommit).lower(),
            "FILE": str(tmp_path / "handled"),
            "CONNECT_TIMEOUT": "30000",
            **changed,
        }
        command = [sys.executable, "-X", "faulthandler", "-c", APP, "-c", str(config)]
        app = App(command, environment, prefix, tmp_path)
        started.append(app)
        return app

    yield start
    for app in started:
        if app.process.poll() is None:
            app.process.kill()
            app.process.wait()


@pytest.mark.parametrize(
    ("by", "autocommit"),
    [(signal.SIGTERM, True), (signal.SIGTERM, False), (signal.SIGINT, True)],
    ids=["SIGTERM-autocommit", "SIGTERM", "SIGINT"],
)
def test_container_starts_works_and_stops_without_loss(
    start_app: Callable[..., App],
    make_queue: MakeQueue,
    make_consumer: MakeConsumer,
    wait_until: WaitUntil,
    committed: Committed,
    by: int,
    autocommit: bool,
) -> None:
    app = start_app(autocommit)
    eventually(app.is_ready, WAIT_S)
    sent: dict[str, list[str]] = {}
    for name in TOPICS:
        queue = make_queue(topic=f"{app.prefix}-{name}", group_id="sender")
        sent[name] = [f"{name}-{n}" for n in range(500)]
        queue.send_batch(None, [envelope(body) for body in sent[name]])
    total = {body for bodies in sent.values() for body in bodies}

    eventually(lambda: app.handled().total() > 300, WAIT_S)
    begun = time.monotonic()
    app.stop(by)
    took = time.monotonic() - begun

    assert "container has run" in app.output()
    assert took < 10
    before = app.handled()
    assert before.total() < len(total), "the process stopped only after all its work"
    for name in TOPICS:
        positions = committed(f"{app.prefix}-{name}", app.prefix)
        done = sum(body in before for body in sent[name])
        # Handled messages are committed, except those in progress at the revocation.
        assert 0 <= done - sum(positions.values()) <= 2, (name, positions, done)

    again = start_app(autocommit)
    eventually(lambda: set(again.handled()) == total, WAIT_S)
    eventually(again.is_ready, WAIT_S)
    again.stop(by)
    for name in TOPICS:
        positions = committed(f"{app.prefix}-{name}", app.prefix)
        assert sum(positions.values()) == len(sent[name]), (name, positions)
    # Only the messages in progress at the stop may be handled twice, as above.
    assert again.handled().total() <= len(total) + 2 * len(TOPICS)
    consumer = make_consumer()
    consumer.subscribe([f"{app.prefix}-answers"])
    answers: set[str] = set()  # may repeat those of messages handled twice
    wait_until(
        lambda: answers >= total,
        lambda: answers.update(m.value().decode() for m in consumer.consume(1000, 0.5)),
    )
    assert answers == total


def test_container_without_a_broker_reports_it_and_exits(start_app: Callable[..., App]) -> None:
    begun = time.monotonic()
    app = start_app(True, SERVERS="127.0.0.1:1", PORT="1", CONNECT_TIMEOUT="500")

    assert app.process.wait(WAIT_S) == 1, app.output()
    assert time.monotonic() - begun < 20
    assert "Connection to Kafka failed" in app.output()
    assert "Press Control-C" not in app.output()
