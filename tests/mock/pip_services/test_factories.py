"""Components by their descriptors."""

from __future__ import annotations

from typing import Any

import pytest
from pip_services4_components.refer import Descriptor
from pip_services_rig import MakeReferences, config

from pip_services4_kafka.build import DefaultKafkaFactory, KafkaMessageQueue
from pip_services4_kafka.build.KafkaMessageQueueFactory import KafkaMessageQueueFactory
from pip_services4_kafka.connect import KafkaConnection

pytestmark = pytest.mark.ours


def descriptor(kind: str, name: str = "test") -> Descriptor:
    return Descriptor("pip-services", kind, "kafka", name, "1.0")


@pytest.mark.parametrize(
    ("kind", "component"),
    [
        ("message-queue", KafkaMessageQueue),
        ("connection", KafkaConnection),
        ("queue-factory", KafkaMessageQueueFactory),
    ],
)
def test_default_factory_makes_every_component(kind: str, component: type) -> None:
    factory = DefaultKafkaFactory()

    assert factory.can_create(descriptor(kind)) is not None
    assert isinstance(factory.create(descriptor(kind)), component)
    assert factory.can_create(Descriptor("pip-services", kind, "nats", "test", "1.0")) is None


def test_queue_has_the_name_of_its_descriptor() -> None:
    for factory in (DefaultKafkaFactory(), KafkaMessageQueueFactory()):
        assert factory.create(descriptor("message-queue", "mine")).get_name() == "mine"


def test_queue_factory_passes_its_configuration_and_references_on(
    make_references: MakeReferences, monkeypatch: Any
) -> None:
    given: list[Any] = []
    monkeypatch.setattr(KafkaMessageQueue, "configure", lambda _, config: given.append(config))
    monkeypatch.setattr(
        KafkaMessageQueue, "set_references", lambda _, references: given.append(references)
    )
    factory = KafkaMessageQueueFactory()
    settings, references = config(topic="t"), make_references()
    factory.configure(settings)
    factory.set_references(references)
    queue = factory.create_queue("mine")

    assert queue.get_name() == "mine"
    assert given == [settings, references]
