"""Applications written for the published package run unchanged."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import pytest
from fixture_types import MakeConsumer, Read, Unique
from machine import WAIT_S
from pip_services4_components.build import Factory
from pip_services4_components.config import ConfigParams, IConfigurable
from pip_services4_components.context import Context, IContext
from pip_services4_components.refer import Descriptor, IReferenceable, IReferences, References
from pip_services4_components.run import Closer, IOpenable, Opener
from pip_services4_messaging.queues import IMessageQueue, IMessageReceiver, MessageEnvelope
from pip_services_rig import Committed, eventually

from pip_services4_kafka.build import DefaultKafkaFactory
from pip_services4_kafka.queues import KafkaMessageQueue

pytestmark = pytest.mark.ours


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("build", "DefaultKafkaFactory"),
        ("build", "KafkaMessageQueue"),
        ("build", "KafkaMessageQueueFactory"),
        ("build.DefaultKafkaFactory", "DefaultKafkaFactory"),
        ("build.KafkaMessageQueueFactory", "KafkaMessageQueueFactory"),
        ("build.KafkaMessageQueueFactory", "KafkaMessageQueue"),
        ("connect", "IKafkaMessageListener"),
        ("connect", "KafkaConnection"),
        ("connect", "KafkaConnectionResolver"),
        ("connect", "KafkaSubscription"),
        ("connect.IKafkaMessageListener", "IKafkaMessageListener"),
        ("connect.KafkaConnection", "KafkaConnection"),
        ("connect.KafkaConnectionResolver", "KafkaConnectionResolver"),
        ("connect.KafkaSubscription", "KafkaSubscription"),
        ("queues", "KafkaMessageQueue"),
        ("queues.KafkaMessageQueue", "KafkaMessageQueue"),
    ],
)
def test_published_import_path_works(path: str, name: str) -> None:
    module = importlib.import_module(f"pip_services4_kafka.{path}")

    assert isinstance(getattr(module, name), type)
    assert getattr(module, name).__name__ == name


def test_documented_example_runs(cluster: Any, unique: Unique) -> None:
    host, port = cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
    topic = unique("mytopic")

    queue = KafkaMessageQueue("myqueue")

    queue.configure(
        ConfigParams.from_tuples(
            "topic", topic,
            "connection.protocol", "tcp",
            "connection.host", host,
            "connection.port", port,
        )
    )  # fmt: skip

    queue.open("123")
    queue.send("123", MessageEnvelope(None, "mymessage", "ABC"))
    message = queue.receive("123")

    assert message is not None
    assert message.message_type == "mymessage"
    assert message.get_message_as_string() == "ABC"
    queue.complete("123", message)
    queue.close("123")
    assert not queue.is_open()


class OrdersService(IConfigurable, IReferenceable, IOpenable, IMessageReceiver):  # type: ignore[misc]
    """A component like those of applications: a queue from the factory, another by reference.

    One document names the first argument `correlation_id`, the other one `context`.
    """

    def __init__(self) -> None:
        self._queue_name = "orders"
        self._orders: IMessageQueue | None = None
        self._events: IMessageQueue | None = None
        self._opened = False
        self.heard: list[MessageEnvelope] = []
        self.changed = threading.Condition()

    def configure(self, config: ConfigParams) -> None:
        self._queue_name = config.get_as_string_with_default("queue", self._queue_name)

    def set_references(self, references: IReferences) -> None:
        factory = references.get_one_required(
            Descriptor("pip-services", "queue-factory", "kafka", "*", "1.0")
        )
        self._orders = factory.create_queue(self._queue_name)
        self._events = references.get_one_required(
            Descriptor("pip-services", "message-queue", "kafka", "events", "1.0")
        )

    def is_open(self) -> bool:
        return self._opened

    def open(self, context: IContext | None) -> None:
        self._orders.open(context)
        self._events.begin_listen(context, self)
        self._opened = True

    def close(self, context: IContext | None) -> None:
        self._events.end_listen(context)
        self._orders.close(context)
        self._opened = False

    def receive_message(self, message: MessageEnvelope, queue: IMessageQueue) -> None:
        with self.changed:
            self.heard.append(message)
            self.changed.notify_all()
        queue.complete(message)

    # The spelling of the first document.

    def place(self, context: IContext | None, order: dict[str, Any]) -> None:
        self._orders.send_as_object(context, "order", order)
        self._events.send(context, envelop=MessageEnvelope(context, "placed", str(order["id"])))

    def handle_next(self, context: IContext | None) -> dict[str, Any] | None:
        message = self._orders.receive(context, wait_timeout=30000)
        if message is None:
            return None
        order: dict[str, Any] = message.get_message_as()
        if order["amount"] < 0:
            self._orders.move_to_dead_letter(message)
            return None
        self._orders.complete(message)
        return order

    # The spelling of the second document.

    def place_old(self, correlation_id: str, order: dict[str, Any]) -> None:
        self._orders.send_as_object(correlation_id, "order", order)
        self._events.send(
            correlation_id=correlation_id,
            message=MessageEnvelope(None, "placed", str(order["id"])),
        )

    def postpone_next(self, correlation_id: str) -> Any:
        message = self._orders.receive(correlation_id=correlation_id, waitTimeout=30000)
        self._orders.abandon(message)
        return message.get_message_as()["id"]

    def upcoming(self, correlation_id: str) -> list[Any]:
        found = self._orders.peek_batch(correlation_id=correlation_id, messageCount=10)
        return [message.get_message_as()["id"] for message in found]


class OrdersFactory(Factory):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.register_as_type(
            Descriptor("orders", "service", "default", "*", "1.0"), OrdersService
        )


def test_existing_application_runs_unchanged(
    cluster: Any, unique: Unique, committed: Committed, make_consumer: MakeConsumer, read: Read
) -> None:
    topic, events = unique("orders"), unique("events")
    common = {
        "group_id": "app",
        "from_beginning": True,
        "autocommit": False,
        "options.retry_backoff": 3000,  # ms; longer than the calls after the abandon
    }
    configured = {
        "connection:kafka:default": {
            "connection.uri": f"tcp://{cluster.bootstrap_servers}",
            "options.connect_timeout": 30000,
        },
        "message-queue:kafka:events": {"topic": events, **common, "options.autosubscribe": True},
        "queue-factory:kafka:default": {**common, "options.autosubscribe": True},
    }
    factory = DefaultKafkaFactory()
    components: list[Any] = [factory]
    references = References()
    for name, values in configured.items():
        descriptor = Descriptor.from_string(f"pip-services:{name}:1.0")
        component = factory.create(descriptor)
        component.configure(ConfigParams(values))
        references.put(descriptor, component)
        components.append(component)
    descriptor = Descriptor("orders", "service", "default", "default", "1.0")
    service = OrdersFactory().create(descriptor)
    service.configure(ConfigParams({"queue": topic}))
    references.put(descriptor, service)
    for component in [*components[1:], service]:
        component.set_references(references)
    context = Context.from_trace_id("123")
    Opener.open(context, [*components[1:], service])
    try:
        queue = service._orders
        assert queue.get_name() == topic
        assert queue.peek(context) is None

        service.place(context, {"id": 1, "amount": 10})
        service.place_old("456", {"id": 2, "amount": -1})
        service.place(None, {"id": 3, "amount": 30})

        eventually(lambda: service.upcoming("456") == [1, 2, 3], WAIT_S)
        assert queue.peek(context).trace_id == "123"
        assert queue.read_message_count() == 3
        assert service.postpone_next("456") == 1
        # The abandoned message comes after the others, and holds back the committed offset.
        assert service.handle_next(context) is None
        assert service.handle_next(context) == {"id": 3, "amount": 30}
        assert committed(topic, "app", 1) == {0: 0}
        assert service.handle_next(context) == {"id": 1, "amount": 10}
        assert committed(topic, "app", 1) == {0: 3}
        assert queue.receive("456", 200) is None
        assert queue.read_message_count() == 0

        with service.changed:
            assert service.changed.wait_for(lambda: len(service.heard) >= 3, WAIT_S)
        assert [event.get_message_as_string() for event in service.heard] == ["1", "2", "3"]
        assert [event.message_type for event in service.heard] == ["placed"] * 3
        assert service.heard[0].trace_id == "123"
    finally:
        Closer.close(context, [service, *reversed(components[1:])])
    assert committed(events, "app", 1) == {0: 3}

    dead = make_consumer()
    dead.subscribe([f"{topic}.dlq"])
    (record,) = read(dead, 1)
    assert b'"amount"' in record.value()
    assert ("trace_id", b"456") in record.headers()
