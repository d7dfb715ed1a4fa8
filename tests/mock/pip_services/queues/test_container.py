"""A container with queues starts, works, and stops on SIGTERM without loss."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixture_types import MakeProducer, Unique
from machine import WAIT_S
from pip_services_rig import Committed

pytest.importorskip("pip_services4_container", reason="needs pip-services4-container")
pytestmark = pytest.mark.ours


SERVICE = """
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")
from pip_services4_components.build import Factory
from pip_services4_components.refer import Descriptor, IReferenceable
from pip_services4_components.run import IOpenable
from pip_services4_container.container import ProcessContainer
from pip_services4_messaging.queues import IMessageReceiver, MessageEnvelope
from pip_services4_kafka.build import DefaultKafkaFactory

handled = os.open(os.environ["HANDLED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Worker(IReferenceable, IOpenable, IMessageReceiver):
    def set_references(self, references):
        find = lambda *names: references.get_one_required(Descriptor(*names))
        self.orders = find("pip-services", "message-queue", "kafka", "orders", "1.0")
        self.bills = find("pip-services", "message-queue", "kafka", "bills", "1.0")
        self.factory = find("pip-services", "queue-factory", "kafka", "*", "1.0")
        connection = find("pip-services", "connection", "kafka", "*", "1.0")
        assert self.orders._connection is connection
        assert self.bills._connection is not connection

    def is_open(self):
        return True

    def open(self, context):
        self.made = self.factory.create_queue("made")
        assert self.made.get_name() == "made"
        self.made._topic = os.environ["ORDERS"]
        self.made.open(context)
        self.made.send(context, MessageEnvelope(context, "test", "made"))
        self.orders.begin_listen(context, self)

    def close(self, context):
        self.made.close(context)

    def receive_message(self, message, queue):
        time.sleep(0.001)
        self.bills.send(None, message)
        os.write(handled, message.message + b"\\n")


class Factories(Factory):
    def __init__(self):
        super().__init__()
        self.register_as_type(Descriptor("test", "worker", "*", "*", "1.0"), Worker)


class Service(ProcessContainer):
    def __init__(self):
        super().__init__("service", "of a test")
        self._factories.add(DefaultKafkaFactory())
        self._factories.add(Factories())


Service().run()
"""

CONFIG = """
- descriptor: "pip-services:context-info:default:default:1.0"
  name: "service"
- descriptor: "pip-services:logger:console:default:1.0"
  level: "info"
- descriptor: "pip-services:connection:kafka:default:1.0"
  connection: {{ uri: "tcp://{servers}" }}
  options: {{ connect_timeout: 10000, kafka: {{ fetch.wait.max.ms: 10 }} }}
- descriptor: "pip-services:message-queue:kafka:orders:1.0"
  topic: "{orders}"
  group_id: "{group}"
  from_beginning: true
- descriptor: "pip-services:message-queue:kafka:bills:1.0"
  topic: "{bills}"
  connection: {{ uri: "tcp://{servers}" }}
  options: {{ connect_timeout: 10000 }}
- descriptor: "pip-services:queue-factory:kafka:default:1.0"
  group_id: "{group}"
  from_beginning: true
- descriptor: "test:worker:default:default:1.0"
"""


def test_container_stops_on_sigterm_without_loss(
    cluster: Any,
    topic: str,
    group: str,
    unique: Unique,
    make_producer: MakeProducer,
    committed: Committed,
    script_command: Callable[..., list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bills = unique("bills")
    cluster.create_topic(bills, 1)
    config, handled = tmp_path / "config.yml", tmp_path / "handled"
    config.write_text(
        CONFIG.format(servers=cluster.bootstrap_servers, orders=topic, bills=bills, group=group)
    )
    handled.touch()
    monkeypatch.setenv("HANDLED", str(handled))
    monkeypatch.setenv("ORDERS", topic)
    producer = make_producer()
    for n in range(1000):
        producer.produce(topic, str(n), partition=n % 4)
    producer.flush()

    def run(until: Callable[[list[str]], bool]) -> str:
        process = subprocess.Popen(
            script_command(SERVICE, "-c", str(config)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        deadline = time.monotonic() + WAIT_S
        try:
            while not until(handled.read_text().split()):
                assert process.poll() is None, process.communicate()[0]
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            output = process.communicate(timeout=WAIT_S)[0]
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, output
        return output

    output = run(lambda lines: len(lines) >= 100)
    assert "Failed" not in output
    assert "Traceback" not in output
    first = set(handled.read_text().split())
    # Committed messages were handled. Messages in progress are redelivered.
    assert sum(committed().values()) <= len(first)
    assert sum(committed().values()) >= len(first) - 1

    wanted = {str(n) for n in range(1000)} | {"made"}
    run(lambda lines: wanted <= set(lines))
