"""AdminClient and configurations: describe, replace, and change single properties."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from fixture_types import CodeOf, Unique, WaitUntil
from machine import WAIT_S


@pytest.fixture
def config_of(api: ModuleType, admin: Any) -> Callable[[str], dict[str, str]]:
    """Return the properties that were set for the topic itself."""

    def config(topic: str) -> dict[str, str]:
        resource = api.ConfigResource("topic", topic)
        entries = admin.describe_configs([resource])[resource].result(WAIT_S)
        own = api.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entry.value for name, entry in entries.items() if entry.source == own}

    return config


@pytest.fixture
def settles(config_of: Any, wait_until: WaitUntil) -> Callable[[str, dict[str, str]], None]:
    """Wait until the queried broker has a topic's new configuration."""

    def wait(topic: str, expected: dict[str, str]) -> None:
        wait_until(lambda: config_of(topic) == expected, lambda: None)

    return wait


def test_topic_s_configuration_is_described(api: ModuleType, admin: Any, topic: str) -> None:
    resource = api.ConfigResource(api.ResourceType.TOPIC, topic)

    futures = admin.describe_configs([resource], request_timeout=WAIT_S)

    entries = futures[resource].result(WAIT_S)
    entry = entries["segment.bytes"]
    assert isinstance(entry, api.ConfigEntry)
    assert (entry.name, int(entry.value) > 0) == ("segment.bytes", True)
    assert (entry.is_read_only, entry.is_sensitive, entry.is_synonym) == (False, False, False)
    assert entry.source in {source.value for source in api.ConfigSource}
    synonym = entry.synonyms["log.segment.bytes"]
    assert (synonym.is_synonym, synonym.value) == (True, entry.value)


def test_broker_s_configuration_is_described(api: ModuleType, admin: Any, result_of: Any) -> None:
    broker = result_of(admin.describe_cluster()).nodes[0].id
    resource = api.ConfigResource(api.ResourceType.BROKER, str(broker))

    entries = admin.describe_configs([resource])[resource].result(WAIT_S)

    assert entries["broker.id"].value == str(broker)
    assert entries["broker.id"].is_read_only
    assert entries["ssl.keystore.password"].is_sensitive
    assert entries["ssl.keystore.password"].value is None


def test_configurations_fail_one_by_one(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, unique: Unique, code_of: CodeOf
) -> None:
    there = api.ConfigResource("topic", topic)
    missing = api.ConfigResource("topic", unique("missing"))

    futures = admin.describe_configs([there, missing])

    assert "retention.ms" in futures[there].result(WAIT_S)
    assert code_of(futures[missing]) == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_request_for_two_broker_configurations_conflicts(
    kafka: ModuleType, api: ModuleType, admin: Any, code_of: CodeOf
) -> None:
    one, two = (api.ConfigResource("broker", name) for name in ("1", "2"))

    futures = admin.describe_configs([one, two])

    assert [code_of(future) for future in futures.values()] == [kafka.KafkaError._CONFLICT] * 2


def test_caller_can_choose_the_broker_that_answers(
    api: ModuleType, admin: Any, topic: str, result_of: Any
) -> None:
    broker = result_of(admin.describe_cluster()).nodes[0].id
    resource = api.ConfigResource("topic", topic)

    assert result_of(admin.describe_configs([resource], broker=broker))


def test_request_to_an_unknown_broker_times_out(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, code_of: CodeOf
) -> None:
    resource = api.ConfigResource("topic", topic)

    futures = admin.describe_configs([resource], broker=4711, request_timeout=1)

    assert code_of(futures[resource]) == kafka.KafkaError._TIMED_OUT


@pytest.mark.filterwarnings("ignore:alter_configs:DeprecationWarning")
def test_configuration_is_replaced(
    api: ModuleType, admin: Any, topic: str, settles: Any, result_of: Any
) -> None:
    first = api.ConfigResource("topic", topic, set_config={"retention.ms": "1000"})
    second = api.ConfigResource("topic", topic, set_config={"retention.bytes": "2000"})

    assert result_of(admin.alter_configs([first])) is None
    settles(topic, {"retention.ms": "1000"})
    result_of(admin.alter_configs([second], request_timeout=WAIT_S))

    settles(topic, {"retention.bytes": "2000"})


@pytest.mark.filterwarnings("ignore:alter_configs:DeprecationWarning")
def test_replacing_configurations_fails_one_by_one(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, unique: Unique, code_of: CodeOf
) -> None:
    good = api.ConfigResource("topic", topic, set_config={"retention.ms": "1000"})
    bad = api.ConfigResource("topic", unique("missing"), set_config={"retention.ms": "1000"})

    futures = admin.alter_configs([good, bad])

    assert futures[good].result(WAIT_S) is None
    assert code_of(futures[bad]) == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_replacing_configurations_is_deprecated(
    api: ModuleType, admin: Any, topic: str, config_of: Any
) -> None:
    resource = api.ConfigResource("topic", topic, set_config={"retention.ms": "1000"})

    with pytest.warns(DeprecationWarning, match="incremental_alter_configs") as warnings:
        futures = admin.alter_configs([resource], validate_only=True)

    assert warnings[0].filename == __file__
    assert futures[resource].result(WAIT_S) is None
    assert config_of(topic) == {}


def entry(api: ModuleType, name: str, value: str | None, operation: str) -> Any:
    return api.ConfigEntry(
        name, value, incremental_operation=getattr(api.AlterConfigOpType, operation)
    )


def test_configuration_is_changed_property_by_property(
    api: ModuleType, admin: Any, topic: str, settles: Any, result_of: Any
) -> None:
    def change(*entries: Any) -> None:
        resource = api.ConfigResource("topic", topic, incremental_configs=list(entries))
        assert result_of(admin.incremental_alter_configs([resource])) is None

    change(entry(api, "retention.ms", "1000", "SET"), entry(api, "retention.bytes", "7", "SET"))
    settles(topic, {"retention.ms": "1000", "retention.bytes": "7"})
    change(entry(api, "retention.bytes", None, "DELETE"))
    settles(topic, {"retention.ms": "1000"})
    change(
        entry(api, "retention.ms", "ignored", "DELETE"),
        entry(api, "cleanup.policy", "compact", "APPEND"),
    )
    settles(topic, {"cleanup.policy": "delete,compact"})
    change(entry(api, "cleanup.policy", "delete", "SUBTRACT"))
    settles(topic, {"cleanup.policy": "compact"})


def test_change_is_validated_only(
    api: ModuleType, admin: Any, topic: str, config_of: Any, result_of: Any
) -> None:
    resource = api.ConfigResource("topic", topic)
    resource.add_incremental_config(entry(api, "retention.ms", "1000", "SET"))

    result_of(admin.incremental_alter_configs([resource], validate_only=True))

    assert config_of(topic) == {}


def test_changes_fail_one_by_one(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, unique: Unique, code_of: CodeOf
) -> None:
    change = entry(api, "retention.ms", "1000", "SET")
    good = api.ConfigResource("topic", topic, incremental_configs=[change])
    bad = api.ConfigResource("topic", unique("missing"), incremental_configs=[change])

    futures = admin.incremental_alter_configs([good, bad])

    assert futures[good].result(WAIT_S) is None
    assert code_of(futures[bad]) == kafka.KafkaError.UNKNOWN_TOPIC_OR_PART


def test_invalid_configuration_value_is_refused(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, code_of: CodeOf
) -> None:
    resource = api.ConfigResource(
        "topic", topic, incremental_configs=[entry(api, "retention.ms", "soon", "SET")]
    )

    futures = admin.incremental_alter_configs([resource])

    assert code_of(futures[resource]) == kafka.KafkaError.INVALID_CONFIG
    assert "retention.ms" in futures[resource].exception().args[0].str()


@pytest.mark.ours
def test_resource_described_twice_has_one_outcome(api: ModuleType, admin: Any, topic: str) -> None:
    resource = api.ConfigResource("topic", topic)

    futures = admin.describe_configs([resource, resource])

    assert "retention.ms" in futures[resource].result(WAIT_S)


def test_property_changed_twice_in_a_request_fails(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, code_of: CodeOf
) -> None:
    change = entry(api, "retention.ms", "1000", "SET")
    resource = api.ConfigResource("topic", topic, incremental_configs=[change, change])

    futures = admin.incremental_alter_configs([resource])

    assert code_of(futures[resource]) == kafka.KafkaError._INVALID_ARG


def test_group_s_configuration_is_changed(
    api: ModuleType, admin: Any, unique: Unique, result_of: Any, wait_until: WaitUntil
) -> None:
    group = unique("group")
    change = entry(api, "consumer.session.timeout.ms", "50000", "SET")

    result_of(
        admin.incremental_alter_configs(
            [api.ConfigResource("group", group, incremental_configs=[change])]
        )
    )

    def entry_of_the_group() -> Any:
        entries = result_of(admin.describe_configs([api.ConfigResource("group", group)]))
        return entries["consumer.session.timeout.ms"]

    wait_until(lambda: entry_of_the_group().value == "50000", lambda: None)
    assert entry_of_the_group().source == api.ConfigSource.GROUP_CONFIG.value
