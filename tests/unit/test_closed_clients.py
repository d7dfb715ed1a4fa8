"""The errors of clients that are closed, were never opened, or have no valid configuration.

Programs match these texts. cykafka may append more text.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

NO_BROKER = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}

# The calls of all handles, then those of each client.
ANY = {"list_topics": (None, 0), "cluster_id": (0,), "set_sasl_credentials": ("a", "b")}
CALLS: dict[str, tuple[str, dict[str, tuple[Any, ...]]]] = {
    "Producer": (
        "Producer has been closed",
        {
            "produce": ("t",),
            "produce_batch": ("t", [{"value": b"x"}]),
            "poll": (0,),
            "flush": (0,),
            "purge": (),
            "init_transactions": (0,),
            "begin_transaction": (),
            "commit_transaction": (0,),
            "abort_transaction": (0,),
            "send_offsets_to_transaction": ("partitions", b"x", 0),
        },
    ),
    "Consumer": (
        "Consumer closed",
        {
            "subscribe": (["t"],),
            "unsubscribe": (),
            "poll": (0,),
            "consume": (1, 0),
            "assign": ("partitions",),
            "unassign": (),
            "assignment": (),
            "incremental_assign": ("partitions",),
            "incremental_unassign": ("partitions",),
            "commit": (),
            "store_offsets": (None, "partitions"),
            "committed": ("partitions", 0),
            "position": ("partitions",),
            "seek": ("partition",),
            "get_watermark_offsets": ("partition", 0),
            "pause": ("partitions",),
            "resume": ("partitions",),
            "offsets_for_times": ("partitions", 0),
            "consumer_group_metadata": (),
            "memberid": (),
        },
    ),
    "AdminClient": (
        "AdminClient has been closed",
        {
            "poll": (0,),
            "create_topics": ("new topics",),
            "delete_topics": (["t"],),
            "describe_topics": ("topics",),
            "delete_records": ("partitions",),
            "list_consumer_groups": (),
            "describe_consumer_groups": (["g"],),
            "delete_consumer_groups": (["g"],),
            "describe_user_scram_credentials": (),
            "describe_cluster": (),
        },
    ),
}


@pytest.fixture(scope="module", autouse=True)
def handles_are_freed(no_handle_left: None) -> None:
    """Fail if a handle is left."""


@pytest.fixture(params=["closed", "not initialized"])
def unusable(request: Any, kafka: ModuleType) -> Iterator[Any]:
    """Make a closed or uninitialized client of a subclass."""

    def make(name: str) -> Any:
        module = importlib.import_module(f"{kafka.__name__}.admin") if "Admin" in name else kafka
        base = getattr(module, name)
        if request.param == "not initialized":
            return type("Mine", (base,), {"__init__": lambda self: None})()
        config = {**NO_BROKER, **({"group.id": "g"} if name == "Consumer" else {})}
        client = type("Mine", (base,), {})(config)
        # confluent_kafka's AdminClient has no close().
        client.__exit__(None, None, None)
        return client

    return make


@pytest.mark.parametrize("name", CALLS)
def test_unusable_client_raises_the_errors_of_confluent_kafka(
    kafka: ModuleType, unusable: Any, name: str
) -> None:
    words, calls = CALLS[name]
    client = unusable(name)
    partition = kafka.TopicPartition("t", 0, 1)
    admin = importlib.import_module(f"{kafka.__name__}.admin")
    given_for = {
        "partition": partition,
        "partitions": [partition],
        "topics": kafka.TopicCollection(["t"]),
        "new topics": [admin.NewTopic("t", 1)],
    }

    refused = {}
    for method, arguments in {**calls, **ANY}.items():
        filled = [
            given_for[given] if isinstance(given, str) and given in given_for else given
            for given in arguments
        ]
        with pytest.raises(RuntimeError) as caught:
            getattr(client, method)(*filled)
        refused[method] = str(caught.value)

    expected = {**dict.fromkeys(calls, words), **dict.fromkeys(ANY, "Handle has been closed")}
    assert refused == expected


def test_close_of_an_unusable_client_is_harmless(unusable: Any) -> None:
    assert unusable("Producer").close() is True
    assert unusable("Consumer").close() is None
    assert len(unusable("Producer")) == 0


@pytest.mark.ours
def test_error_of_a_closed_client_names_it(kafka: ModuleType) -> None:
    producer = type("Orders", (kafka.Producer,), {})({**NO_BROKER, "client.id": "shop"})
    producer.close()

    with pytest.raises(RuntimeError) as raised:
        producer.poll(0)
    assert str(raised.value) == "Producer has been closed"
    (note,) = raised.value.__notes__
    assert note.startswith("Orders shop#producer-")
    with pytest.raises(RuntimeError, match=r"Orders.__init__ was not called$"):
        type(producer).__new__(type(producer)).poll(0)


@pytest.mark.parametrize("config", [None, "x", [], 1])
@pytest.mark.parametrize("name", ["Producer", "Consumer", "AdminClient"])
def test_configuration_that_is_not_a_dict_is_refused(
    kafka: ModuleType, name: str, config: Any
) -> None:
    module = importlib.import_module(f"{kafka.__name__}.admin") if "Admin" in name else kafka

    with pytest.raises(TypeError, match=r"^expected configuration dict"):
        getattr(module, name)(config)


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_two_configuration_dicts_are_refused(kafka: ModuleType, name: str) -> None:
    with pytest.raises(TypeError, match=r"^expected tuple containing single dict"):
        getattr(kafka, name)(NO_BROKER, NO_BROKER)
