"""``cykafka groups`` on a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from fixture_types import MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S

from cykafka import Consumer, KafkaException, Producer, TopicPartition

pytestmark = pytest.mark.ours


@pytest.fixture
def filled(cluster: Any, unique: Unique, make_producer: MakeProducer) -> str:
    """A topic of four partitions with 100 records in partition 0, timestamps 1000 to 1099."""
    topic = unique("filled")
    cluster.create_topic(topic, 4, config={"retention.ms": -1})  # the records are of 1970
    make_producer().publish(
        topic, [b"x"] * 100, partitions=0, timestamps=list(range(1000, 1100))
    ).wait()
    return topic


@pytest.fixture
def group(filled: str, unique: Unique, make_consumer: MakeConsumer) -> str:
    """A group without members that has committed 40 in partition 0, and 0 in partition 1."""
    name = unique("billing")
    consumer = make_consumer({"group.id": name})
    offsets = [TopicPartition(filled, 0, 40), TopicPartition(filled, 1, 0)]
    consumer.commit(offsets=offsets, asynchronous=False)
    return name


@pytest.fixture
def join(filled: str, read: Callable[..., Any], make_consumer: MakeConsumer) -> Callable[..., Any]:
    """Make a member of a group that has read the topic, and has committed offset 30."""

    def join(name: str, protocol: str) -> Any:
        member = make_consumer(
            {"group.id": name, "group.protocol": protocol, "client.id": f"reader-{protocol}"}
        )
        member.subscribe([filled])
        message = read(member, 30)[-1]
        member.commit(message, asynchronous=False)
        return member

    return join


def committed(run_cli: Run, group: str) -> dict[int, int]:
    (described,) = run_cli("groups", "describe", group, "--json").rows
    return {item["partition"]: item["committed"] for item in described["offsets"]}


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_live_group_is_described_with_members_and_lag(
    run_cli: Run, filled: str, join: Callable[..., Any], unique: Unique,
    protocol: str,
) -> None:  # fmt: skip
    name = unique("live")
    member = join(name, protocol)
    member_id = member.memberid()

    assert run_cli("groups", "list", name, "--json").rows == [
        {"group": name, "state": "stable", "type": protocol}
    ]
    assert name in run_cli("groups", "list", "--type", protocol, "--state", "stable").out
    other = {"consumer": "classic", "classic": "consumer"}[protocol]
    assert name not in run_cli("groups", "list", "--type", other).out
    (described,) = run_cli("groups", "describe", name, "--json").rows
    assert described["state"] == "stable"
    assert described["type"] == protocol
    assert described["lag"] == 70
    (shown,) = described["members"]
    assert shown["member"] == member_id
    assert shown["client_id"] == f"reader-{protocol}"
    assert shown["host"] == "127.0.0.1"
    assert shown["partitions"] == 4
    first, second = described["offsets"][:2]
    assert first == {
        "topic": filled,
        "partition": 0,
        "committed": 30,
        "end": 100,
        "lag": 70,
        "member": member_id,
    }
    assert (second["committed"], second["lag"], second["member"]) == (None, None, member_id)
    text = run_cli("groups", "describe", name).out
    assert text.startswith(f"group {name}: stable, type {protocol}, ")
    assert "1 member, lag 70\n" in text
    # While it has a member, its offsets stay.
    for command in (
        ("reset", name, "--topic", filled, "--to", "end", "--yes"),
        ("reset", name, "--topic", filled, "--to", "end", "--dry-run"),
    ):
        refused = run_cli("groups", *command, status=1)
        assert (
            f"group {name} has 1 member, such as reader-{protocol} on 127.0.0.1" in refused.error
        )
    assert "cannot delete group" in run_cli("groups", "delete", name, "-y", status=1).error
    assert "subscribed" in run_cli("groups", "delete-offsets", name, filled, "-y", status=1).error
    assert committed(run_cli, name)[0] == 30


def test_lag_is_summed_by_topic_and_compared(run_cli: Run, filled: str, group: str) -> None:
    assert run_cli("groups", "lag", group, "--json").rows == [
        {
            "group": group,
            "topic": filled,
            "partitions": 2,
            "committed": 40,
            "end": 100,
            "lag": 60,
            "max_lag": 60,
        }
    ]
    run_cli("groups", "lag", group, "--max", 60)
    late = run_cli("groups", "lag", group, "--max", 59, status=1)
    assert late.error == f"cykafka: group {group} has a lag of 60, more than 59\n"


def test_unknown_lag_fails_the_check(
    run_cli: Run, filled: str, make_consumer: MakeConsumer, unique: Unique,
    wait_until: WaitUntil,
) -> None:  # fmt: skip
    name = unique("silent")
    member = make_consumer({"group.id": name})
    member.subscribe([filled])
    wait_until(lambda: member.poll(0.1) or member.assignment())

    checked = run_cli("groups", "lag", name, "--max", 0, status=1)
    assert checked.error == (
        f"cykafka: the lag of group {name} in topic {filled} is unknown: "
        "check that its consumers commit offsets\n"
    )
    member.close()

    left = run_cli("groups", "lag", name, "--max", 0, "--json", status=1)
    assert f"the lag of group {name} is unknown" in left.error
    (row,) = left.rows
    assert (row["group"], row["topic"], row["partitions"], row["lag"]) == (name, None, 0, None)
    assert run_cli("groups", "lag", name).error == ""
    missing = unique("missing")
    error = run_cli("groups", "lag", missing, "--max", 0, status=1).error
    assert f"group '{missing}' does not exist" in error


def test_descriptions_are_separated_by_an_empty_line(
    run_cli: Run, filled: str, group: str
) -> None:
    other = f"{group}-2"
    run_cli("groups", "reset", other, "--topic", filled, "--to", "end", "--yes")
    for command, *names in (("groups", group, other), ("topics", filled)):
        out = run_cli(command, "describe", *names).out
        assert out.count("\n\n") == len(names) - 1
        assert not out.endswith("\n\n")


def test_lag_without_the_topic_is_unknown(
    run_cli: Run, filled: str, group: str, delete_topic: Callable[[str], None],
    wait_until: WaitUntil,
) -> None:  # fmt: skip
    delete_topic(filled)

    def offsets() -> list[dict[str, Any]]:
        (described,) = run_cli("groups", "describe", group, "--json").rows
        return list(described["offsets"])

    # The broker removes the offsets a moment later; until then they have no end.
    wait_until(
        lambda: all(offset["end"] is None and offset["lag"] is None for offset in offsets())
    )


RESETS = [
    (("--to", "beginning"), 0, False),
    (("--to", "earliest"), 0, False),
    (("--to", "end"), 100, False),
    (("--to", "latest"), 100, False),
    (("--to", "current"), 40, False),
    (("--to", "70"), 70, False),
    (("--to", "700"), 100, True),
    (("--to", "-10"), 90, False),
    (("--to", "@1050"), 50, False),
    (("--to", "@1970-01-01T00:00:01.020Z"), 20, False),
    (("--to", "@now"), 100, False),
    (("--to", "@-1d"), 100, False),
    (("--shift-by", "5"), 45, False),
    (("--shift-by", "-50"), 0, True),
]


@pytest.mark.parametrize(("options", "after", "limited"), RESETS, ids=lambda item: str(item))
def test_offsets_are_reset_as_the_dry_run_shows(
    run_cli: Run, filled: str, group: str, options: tuple[str, ...], after: int, limited: bool
) -> None:
    command = ("groups", "reset", group, "--topic", f"{filled}:0", *options, "--json")

    planned = run_cli(*command, "--dry-run").rows

    assert committed(run_cli, group)[0] == 40
    assert planned == [
        {
            "group": group,
            "topic": filled,
            "partition": 0,
            "before": 40,
            "after": after,
            "begin": 0,
            "end": 100,
            "limited": limited,
        }
    ]
    assert run_cli(*command, "--yes").rows == planned
    assert committed(run_cli, group) == {0: after, 1: 0}


def test_reset_is_saved_and_restored_as_csv(
    run_cli: Run, filled: str, group: str, tmp_path: Path
) -> None:
    saved = run_cli("groups", "reset", group, "--all-topics", "--to", "current", "--dry-run",
                    "--csv").out  # fmt: skip
    assert saved == f"{filled},0,40\n{filled},1,0\n"
    path = tmp_path / "saved.csv"
    path.write_text(saved)
    run_cli("groups", "reset", group, "--all-topics", "--to", "end", "--yes")
    assert committed(run_cli, group) == {0: 100, 1: 0}

    run_cli("groups", "reset", group, "--from-csv", path, "--yes")

    assert committed(run_cli, group) == {0: 40, 1: 0}


def test_reset_of_a_new_group_creates_it(run_cli: Run, filled: str, unique: Unique) -> None:
    name = unique("fresh")

    refused = run_cli("groups", "reset", name, "--all-topics", "--to", "end", "-y", status=1)
    assert f"group {name} does not exist; name topics with --topic" in refused.error
    command = ("groups", "reset", name, "--topic", filled, "--to", "end", "--json")
    planned = run_cli(*command, "--dry-run")
    assert f"cykafka: group {name} does not exist, so it would be created" in planned.error
    done = run_cli(*command, "--yes")
    assert (done.rows, done.error) == (planned.rows, "")

    assert run_cli("groups", "list", name, "--json").rows[0]["state"] == "empty"
    assert committed(run_cli, name) == {0: 100, 1: 0, 2: 0, 3: 0}


def test_reset_of_a_missing_partition_changes_nothing(
    run_cli: Run, filled: str, group: str
) -> None:
    refused = run_cli("groups", "reset", group, "-t", f"{filled}:0,9", "--to", "end", "-y",
                      status=1)  # fmt: skip

    assert f"{filled} has no partition 9; its last is 3" in refused.error
    assert committed(run_cli, group) == {0: 40, 1: 0}


def test_offsets_and_groups_are_deleted(run_cli: Run, filled: str, group: str) -> None:
    row = {"group": group, "topic": filled, "partition": 1, "committed": 0}
    command = ("groups", "delete-offsets", group, f"{filled}:1-3", "--json")
    assert run_cli(*command, "--dry-run").rows == [{**row, "outcome": "would be deleted"}]
    assert run_cli(*command, "--yes").rows == [{**row, "outcome": "deleted"}]
    assert committed(run_cli, group) == {0: 40}
    assert "has no committed offset in" in run_cli(*command, "--yes", status=1).error

    command = ("groups", "delete", f"{group}*", "--json")
    listed = run_cli("groups", "delete", group, "--dry-run", "--json").rows
    assert listed == [{"group": group, "offsets": 1, "outcome": "would be deleted"}]
    assert {"group": group, "offsets": 1, "outcome": "deleted"} in run_cli(*command, "-y").rows
    assert (
        f"group '{group}' does not exist"
        in run_cli("groups", "delete", group, "--yes", status=1).error
    )


def test_reset_group_is_read_from_the_new_offset(
    run_cli: Run, filled: str, group: str, make_consumer: MakeConsumer
) -> None:
    run_cli("groups", "reset", group, "-t", f"{filled}:0", "--to", "77", "--yes")

    member = make_consumer({"group.id": group})
    member.subscribe([filled])
    message = member.poll(WAIT_S)

    assert message.offset() == 77


def test_watch_goes_on_after_an_outage(
    three: Any, unique: Unique, own_profiles: None, wait_until: WaitUntil
) -> None:
    def commits() -> bool:
        # The coordinators of a new cluster move at first.
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        except KafkaException:
            return False
        return True

    topic, group = unique("watched"), unique("billing")
    three.create_topic(topic, 1)
    config = {"bootstrap.servers": three.bootstrap_servers, "group.id": group}
    options = ["--watch", "--interval", "0.1", "--timeout", "1", "--json"]
    with (
        Consumer(config) as consumer,
        subprocess.Popen(
            [sys.executable, "-m", "cykafka", "groups", "lag", group, *options, "-b",
             three.bootstrap_servers],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert f"group '{group}' does not exist" in process.stderr.readline()
            wait_until(commits)
            assert json.loads(process.stdout.readline())["group"] == group
            for node in three.nodes:
                node.pause()
            while "cannot reach" not in (line := process.stderr.readline()):
                assert line
            for node in three.nodes:
                node.resume()
            with Producer({"bootstrap.servers": three.bootstrap_servers}) as producer:
                producer.publish(topic, [b"x"] * 3).wait(WAIT_S)
            while json.loads(process.stdout.readline())["lag"] != 3:
                assert process.poll() is None
        finally:
            process.kill()
            process.communicate()
