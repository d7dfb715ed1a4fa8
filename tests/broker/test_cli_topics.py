"""``cykafka topics`` on a real broker."""

from __future__ import annotations

import time
from typing import Any

import pytest
from command_line import Run, runner
from fixture_types import MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S

from cykafka import TopicPartition
from cykafka.admin import AdminClient

pytestmark = pytest.mark.ours


@pytest.fixture
def filled(cluster: Any, unique: Unique, make_producer: MakeProducer) -> str:
    """A topic with 10 records in partition 0 and in partition 1, timestamps 1000 to 1009."""
    topic = unique("filled")
    cluster.create_topic(topic, 4, config={"retention.ms": -1})  # the records are of 1970
    delivery = make_producer().publish(
        topic,
        [b"x"] * 20,
        partitions=[0] * 10 + [1] * 10,
        timestamps=[*range(1000, 1010), *range(1000, 1010)],
    )
    delivery.wait()
    return topic


def ends(run_cli: Run, topic: str) -> list[tuple[int, int]]:
    rows = run_cli("topics", "offsets", topic, "--json").rows
    assert [row["partition"] for row in rows] == list(range(len(rows)))
    return [(row["begin"], row["end"]) for row in rows]


def test_topic_is_created_listed_and_deleted(run_cli: Run, unique: Unique) -> None:
    name = unique("made")

    created = run_cli("topics", "create", name, "-p", 3, "-r", 1, "-c", "retention.ms=1000000")
    assert created.out == f"{'topic':{len(name)}}  outcome\n{name}  created\n"
    listed = run_cli("topics", "list", name[:-1] + "*", name, "--json").rows
    assert {
        "topic": name,
        "partitions": 3,
        "replication_factor": 1,
        "under_replicated": 0,
        "internal": False,
    } in listed
    (described,) = run_cli("topics", "describe", name, "--json").rows
    assert described["configs"]["retention.ms"] == "1000000"
    assert "segment.bytes" not in described["configs"]
    assert run_cli("topics", "delete", name, "--dry-run", "--json").rows == [
        {"topic": name, "outcome": "would be deleted"}
    ]
    assert run_cli("topics", "delete", name, "--yes", "--json").rows == [
        {"topic": name, "outcome": "deleted"}
    ]
    assert f"topic '{name}' does not exist" in run_cli("topics", "list", name, status=1).error
    assert run_cli("topics", "delete", name, "--yes", "--if-exists", "--json").rows == []


def test_topic_that_exists_is_an_error_unless_that_is_allowed(run_cli: Run, topic: str) -> None:
    refused = run_cli("topics", "create", topic, status=1)

    assert refused.out == ""
    assert f"cannot create topic {topic}: Topic '{topic}' already exists." in refused.error
    assert run_cli("topics", "create", topic, "--if-not-exists", "--json").rows == [
        {"topic": topic, "outcome": "exists"}
    ]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("topics", "create", ""), "empty name"),
        (("topics", "create", "t", "-p", 2**31), "num_partitions"),
        (("topics", "create", "\udcff"), "surrogates"),
        (
            ("groups", "reset", "", "--topic", "{topic}", "--to", "end", "--yes"),
            "that is not empty",
        ),
        (("configs", "describe", "group", ""), "empty name"),
    ],
    ids=lambda item: " ".join(map(ascii, item)) if isinstance(item, tuple) else "",
)
def test_argument_that_no_request_can_have_exits_2(
    run_cli: Run, topic: str, command: tuple[object, ...], words: str
) -> None:
    arguments = [str(item).format(topic=topic) for item in command]

    assert words in run_cli(*arguments, status=2).error


def test_dry_run_of_create_asks_the_broker(run_cli: Run, unique: Unique) -> None:
    name = unique("dry")

    assert run_cli("topics", "create", name, "--dry-run", "--json").rows == [
        {"topic": name, "outcome": "valid"}
    ]
    wrong = run_cli("topics", "create", name, "--dry-run", "--set", "retention.ms=x", status=1)
    assert "retention.ms" in wrong.error
    assert (
        "replication factor"
        in run_cli("topics", "create", name, "--dry-run", "-r", 100, status=1).error.lower()
    )
    run_cli("topics", "list", name, status=1)


def test_internal_topics_are_listed_on_request(run_cli: Run) -> None:
    names = [row["topic"] for row in run_cli("topics", "list", "--json").rows]
    rows = run_cli("topics", "list", "--internal", "--json").rows

    assert not any(name.startswith("__") for name in names)
    assert {"__consumer_offsets", "__transaction_state"} <= {
        row["topic"] for row in rows if row["internal"]
    }


def test_description_has_leaders_replicas_and_offsets(run_cli: Run, filled: str) -> None:
    (described,) = run_cli("topics", "describe", filled, "--json").rows
    text = run_cli("topics", "describe", filled).out

    (leader,) = {item["leader"] for item in described["partitions"]}
    assert described["topic"] == filled
    assert described["replication_factor"] == 1
    assert [item["partition"] for item in described["partitions"]] == [0, 1, 2, 3]
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": leader,
        "replicas": [leader],
        "isr": [leader],
        "under_replicated": False,
        "begin": 0,
        "end": 10,
        "records": 10,
    }
    assert text.startswith(f"topic {filled}, id {described['topic_id']}\nconfigs: ")
    assert text.splitlines()[2].split()[:3] == ["partition", "leader", "replicas"]


def test_replicas_that_are_not_in_sync_are_found(
    three: Any, capsys: pytest.CaptureFixture[str], own_profiles: None,
    unique: Unique, wait_until: WaitUntil,
) -> None:  # fmt: skip
    run = runner(three.bootstrap_servers, capsys)
    name = unique("replicated")
    internal = f"__{name}"
    run("topics", "create", name, internal, "-p", 3, "-r", 3)

    def found() -> set[str]:
        rows = run("topics", "describe", "--under-replicated", "--json").rows
        return {row["topic"] for row in rows} & {name, internal}

    assert not found()

    down = three.nodes[2]
    down.kill()
    # Until the brokers notice, they name the dead node as the controller.
    with AdminClient({"bootstrap.servers": three.bootstrap_servers}) as admin:
        wait_until(lambda: down.id not in admin.list_topics(timeout=WAIT_S).brokers)

    def behind() -> list[dict[str, Any]]:
        rows = run("topics", "describe", name, "--under-replicated", "--json").rows
        return rows[0]["partitions"] if rows else []

    wait_until(lambda: [len(item["isr"]) for item in behind()] == [2, 2, 2])
    assert all(item["under_replicated"] for item in behind())
    assert down.id not in {item["leader"] for item in behind()}
    (listed,) = run("topics", "list", name, "--json").rows
    assert listed["under_replicated"] == 3
    wait_until(lambda: found() == {name, internal})


def test_partitions_are_added_as_the_dry_run_shows(
    run_cli: Run, topic: str, wait_until: WaitUntil
) -> None:
    command = ("topics", "alter", topic, "--partitions", 6, "--json")

    assert run_cli(*command, "--dry-run").rows == [{"topic": topic, "before": 4, "after": 6}]
    assert len(run_cli("topics", "offsets", topic, "--json").rows) == 4
    assert run_cli(*command, "--yes").rows == [{"topic": topic, "before": 4, "after": 6}]
    wait_until(lambda: len(run_cli("topics", "offsets", topic, "--json").rows) == 6)
    fewer = run_cli("topics", "alter", topic, "--partitions", 2, "--yes", status=1)
    assert f"cannot add partitions to topic {topic}" in fewer.error


def test_offsets_of_some_partitions_and_times(run_cli: Run, filled: str) -> None:
    assert run_cli("topics", "offsets", f"{filled}:1-2", "--json").rows == [
        {"topic": filled, "partition": 1, "begin": 0, "end": 10, "records": 10},
        {"topic": filled, "partition": 2, "begin": 0, "end": 0, "records": 0},
    ]
    at = run_cli("topics", "offsets", f"{filled}:1,2", "--time", "1004", "--json").rows
    assert at == [
        {"topic": filled, "partition": 1, "offset": 4, "timestamp": "1970-01-01T00:00:01.004Z"},
        {"topic": filled, "partition": 2, "offset": None, "timestamp": None},
    ]
    (last,) = run_cli("topics", "offsets", f"{filled}:1", "--time", "latest", "--json").rows
    assert last["offset"] == 10
    (newest,) = run_cli(
        "topics", "offsets", f"{filled}:1", "--time", "max-timestamp", "--json"
    ).rows
    assert newest["offset"] == 9
    assert (
        "max-timestamp" in run_cli("topics", "offsets", filled, "--time", "soon", status=2).error
    )


def test_records_before_a_place_are_deleted(run_cli: Run, filled: str) -> None:
    def delete(arguments: tuple[Any, ...], *options: str) -> list[tuple[int, int, int]]:
        rows = run_cli("topics", "delete-records", *arguments, *options, "--json").rows
        return [(row["partition"], row["deleted"], row["begin"]) for row in rows]

    before = (f"{filled}:0,1", "--before", 3)
    assert delete(before, "--dry-run") == [(0, 3, 3), (1, 3, 3)]
    assert ends(run_cli, filled)[:2] == [(0, 10), (0, 10)]
    assert delete(before, "--yes") == [(0, 3, 3), (1, 3, 3)]
    assert delete((f"{filled}:0", "--before", "@1005"), "--yes") == [(0, 2, 5)]
    assert delete((f"{filled}:0", "--before", "-2"), "--yes") == [(0, 3, 8)]
    everything = (filled, "--before", "end")
    assert delete(everything, "--dry-run") == delete(everything, "--yes")
    assert ends(run_cli, filled) == [(10, 10), (10, 10), (0, 0), (0, 0)]
    assert delete(everything, "--dry-run") == delete(everything, "--yes") == []


def test_records_before_an_offset_beyond_the_end_are_kept(run_cli: Run, filled: str) -> None:
    refused = run_cli("topics", "delete-records", filled, "--before", 5, "--yes", status=1)

    assert f"{filled}[2] has no offset 5: its end is 0" in refused.error
    assert ends(run_cli, filled)[0] == (0, 10)


def test_unreachable_brokers_end_with_one_line(
    own_profiles: None, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    failed = runner("127.0.0.1:1", capsys)("topics", "list", "--timeout", "1", status=1)

    assert time.monotonic() - began < 30
    (line,) = failed.error.splitlines()
    assert line.startswith("cykafka: cannot reach 127.0.0.1:1 within 1 s: ")


def test_offsets_are_those_that_a_consumer_sees(
    run_cli: Run, filled: str, make_consumer: MakeConsumer
) -> None:
    consumer = make_consumer()
    seen = [
        tuple(consumer.get_watermark_offsets(TopicPartition(filled, number)))
        for number in range(4)
    ]

    assert ends(run_cli, filled) == seen
