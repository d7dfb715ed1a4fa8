"""Subject name strategies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from memory_registry import AsyncMemoryRegistry, MemoryRegistry

from cykafka.schemas.model.subjects import (
    FALLBACK_TYPE,
    KAFKA_CLUSTER_ID,
    AssociatedNameStrategy,
    AsyncAssociatedNameStrategy,
    SubjectNameStrategyType,
    record_subject_name_strategy,
    reference_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from cykafka.serialization import MessageField, SerializationContext, SerializationError

pytestmark = pytest.mark.ours

KEY = SerializationContext("orders", MessageField.KEY)
VALUE = SerializationContext("orders", MessageField.VALUE)


def test_names() -> None:
    assert topic_subject_name_strategy(KEY, "shop.Order") == "orders-key"
    assert topic_subject_name_strategy(VALUE, None) == "orders-value"
    assert topic_record_subject_name_strategy(VALUE, "shop.Order") == "orders-shop.Order"
    assert topic_record_subject_name_strategy(VALUE, None) is None
    assert record_subject_name_strategy(None, "shop.Order") == "shop.Order"
    assert record_subject_name_strategy(VALUE, None) is None
    assert reference_subject_name_strategy(VALUE, None) is None


@pytest.mark.parametrize(
    "strategy", [topic_subject_name_strategy, topic_record_subject_name_strategy]
)
def test_a_topic_is_needed(strategy: Any) -> None:
    with pytest.raises(ValueError, match="needs a SerializationContext"):
        strategy(None, "shop.Order")


def test_association_is_asked_for_once() -> None:
    registry, strategy = MemoryRegistry(), AssociatedNameStrategy()
    registry.associations["orders"] = ["all-orders"]

    assert [strategy(VALUE, None, registry) for _ in range(3)] == ["all-orders"] * 3

    assert registry.calls["associations"] == 1
    assert registry.cluster == "-"
    strategy.clear_cache()
    strategy(VALUE, None, registry)
    assert registry.calls["associations"] == 2


@pytest.mark.parametrize(
    ("fallback", "subject"),
    [
        (None, "orders-value"),
        ("TOPIC", "orders-value"),
        ("record", "shop.Order"),
        (SubjectNameStrategyType.TOPIC_RECORD, "orders-shop.Order"),
    ],
)
def test_fallback_names_the_subject(fallback: Any, subject: str) -> None:
    for associations in ({}, {"orders": []}):  # a registry without associations, and with none
        registry = MemoryRegistry()
        registry.associations.update(associations)
        conf = {FALLBACK_TYPE: fallback}
        assert AssociatedNameStrategy()(VALUE, "shop.Order", registry, conf) == subject


def test_no_or_several_associations_are_errors() -> None:
    registry = MemoryRegistry()
    with pytest.raises(SerializationError, match="no associated subject"):
        AssociatedNameStrategy()(VALUE, None, registry, {FALLBACK_TYPE: "NONE"})
    registry.associations["orders"] = ["a", "b"]
    with pytest.raises(SerializationError, match="2 subjects"):
        AssociatedNameStrategy()(VALUE, None, registry)
    for wrong in ("ASSOCIATED", "x"):
        with pytest.raises(ValueError, match=FALLBACK_TYPE):
            AssociatedNameStrategy()(VALUE, None, registry, {FALLBACK_TYPE: wrong})


def test_cluster_id_is_given_or_found() -> None:
    registry, strategy = MemoryRegistry(), AssociatedNameStrategy(cache_capacity=1)
    strategy.set_cluster_id_resolver(lambda: "found")
    strategy(VALUE, None, registry, {KAFKA_CLUSTER_ID: "given"})
    assert registry.cluster == "given"
    strategy(KEY, None, registry)
    assert registry.cluster == "found"

    def fail() -> str:
        raise RuntimeError("no broker")

    strategy.set_cluster_id_resolver(fail)
    with pytest.raises(SerializationError, match="no broker") as caught:
        strategy(VALUE, None, registry)
    assert isinstance(caught.value.__cause__, RuntimeError)
    strategy.set_cluster_id_resolver(lambda: "")
    with pytest.raises(SerializationError, match="no id"):
        strategy(VALUE, None, registry)


def test_association_of_an_awaited_client() -> None:
    registry, strategy = MemoryRegistry(), AsyncAssociatedNameStrategy()
    registry.associations["orders"] = ["all-orders"]

    async def resolver() -> str:
        return "found"

    async def main() -> None:
        strategy.set_async_cluster_id_resolver(resolver)
        client = AsyncMemoryRegistry(registry)
        assert await strategy(VALUE, None, client) == "all-orders"
        assert await strategy(VALUE, None, client) == "all-orders"
        await strategy.clear_cache()

    asyncio.run(main())
    assert (registry.calls["associations"], registry.cluster) == (1, "found")
