"""cykafka top with real brokers: samples, the page, and its output for programs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, Read, Unique, WaitUntil
from machine import WAIT_S
from textual_screen import screen_text

from cykafka import ConsumerGroupTopicPartitions, TopicPartition
from cykafka.cli.cluster.connection import Connection
from cykafka.cli.cluster.lag import Position
from cykafka.cli.terminal.failures import Failed
from cykafka.cli.top.sampling import History, Sampler
from cykafka.cli.top.view import TopApp


@pytest.fixture
def sampler(cluster: Any) -> Iterator[Callable[..., Sampler]]:
    """Make samplers of the cluster for some groups and topics."""
    brokers = Connection(bootstrap_servers=cluster.bootstrap_servers, timeout=WAIT_S).brokers()
    with brokers.admin() as client:
        yield lambda groups=(), topics=(): Sampler(brokers, client, groups, topics)


@pytest.fixture
def group(unique: Unique) -> str:
    return unique("group")


@pytest.fixture
def commit(admin: Any) -> Callable[..., None]:
    """Commit offsets for a group without members."""

    def commit(group: str, topic: str, *offsets: int) -> None:
        partitions = [TopicPartition(topic, *item) for item in enumerate(offsets)]
        request = ConsumerGroupTopicPartitions(group, partitions)
        admin.alter_consumer_group_offsets([request])[group].result(WAIT_S)

    return commit


def lags(positions: tuple[Position, ...]) -> dict[tuple[str, int], int | None]:
    return {(position.topic, position.partition): position.lag for position in positions}


def test_sample_has_lag_and_rates_of_a_group(
    sampler: Callable[..., Sampler],
    commit: Callable[..., None],
    fill: Fill,
    topic: str,
    group: str,
) -> None:
    fill(topic, 10, 0)
    fill(topic, 5, 1)
    commit(group, topic, 4, 5)
    take, history = sampler([group]).sample, History()
    first = take()
    history.add(first)
    fill(topic, 20, 0)
    commit(group, topic, 10)
    second = take()
    rows = history.add(second)

    assert lags(first.positions) == {(topic, 0): 6, (topic, 1): 0}
    assert lags(second.positions) == {(topic, 0): 20, (topic, 1): 0}
    assert [(group.name, group.state, group.error) for group in second.groups] == [
        (group, "empty", None)
    ]
    seconds = second.clock_s - first.clock_s
    assert rows[0].produced_s == pytest.approx(20 / seconds)
    assert rows[0].consumed_s == pytest.approx(6 / seconds)
    assert [row.course for row in rows] == [(6, 20), (0, 0)]


def test_sample_names_the_member_of_each_partition(
    sampler: Callable[..., Sampler],
    make_consumer: MakeConsumer,
    fill: Fill,
    read: Read,
    topic: str,
    group: str,
) -> None:
    fill(topic, 3)
    config = {"group.id": group, "group.protocol": "consumer", "client.id": "worker-7"}
    consumer = make_consumer(config)
    consumer.subscribe([topic])
    read(consumer, 3)
    sample = sampler([group]).sample()

    # Nothing is committed, but the assigned partitions are there.
    assert lags(sample.positions) == {(topic, number): None for number in range(4)}
    assert {position.client_id for position in sample.positions} == {"worker-7"}
    assert sample.positions[0].end == 3
    assert [group.state for group in sample.groups] == ["stable"]


def test_patterns_choose_groups_and_topics(
    sampler: Callable[..., Sampler], commit: Callable[..., None], cluster: Any, unique: Unique
) -> None:
    name = unique("pattern")
    topics, groups = [f"{name}-a", f"{name}-b"], [f"{name}-1", f"{name}-2"]
    for topic in topics:
        cluster.create_topic(topic, 1)
    commit(groups[0], topics[0], 0)
    commit(groups[0], topics[1], 0)
    commit(groups[1], topics[1], 0)

    def found(*chosen: list[str]) -> set[tuple[str, str]]:
        return {
            (position.group, position.topic) for position in sampler(*chosen).sample().positions
        }

    pairs = {(groups[0], topics[0]), (groups[0], topics[1]), (groups[1], topics[1])}
    assert found([f"{name}-*"]) == pairs
    assert found([groups[1]]) == {(groups[1], topics[1])}
    assert found([f"{name}-?"], [topics[0]]) == {(groups[0], topics[0])}
    assert {group.name for group in sampler((), [topics[0]]).sample().groups} == {groups[0]}
    assert found(["no-such-group"]) == set()


def test_deleted_topic_is_an_error_of_its_partitions(
    sampler: Callable[..., Sampler],
    commit: Callable[..., None],
    admin: Any,
    topic: str,
    group: str,
    wait_until: WaitUntil,
) -> None:
    # Kafka deletes a topic's committed offsets a moment after the topic.
    seen: set[tuple[int | None, str | None]] = set()
    commit(group, topic, 7)
    take = sampler([group]).sample
    assert [(position.lag, position.error) for position in take().positions] == [(0, None)]
    admin.delete_topics([topic])[topic].result(WAIT_S)

    def deleted() -> bool:
        positions = take().positions
        seen.update((position.end, position.error) for position in positions)
        return not positions or (None, "deleted") in seen

    wait_until(deleted)


def test_sample_fails_without_brokers_and_succeeds_again(
    own_brokers: None, kafka_cluster_factory: Callable[..., Any], group: str
) -> None:
    cluster = kafka_cluster_factory()
    cluster.create_topic("orders", 1)
    brokers = Connection(bootstrap_servers=cluster.bootstrap_servers, timeout=2).brokers()
    page_sees: list[str] = []

    async def page(sampler: Sampler) -> None:
        app = TopApp(sampler.sample, 0.1, brokers.servers)
        async with app.run_test(size=(80, 24)) as pilot:

            async def shows(text: str) -> None:
                deadline = time.monotonic() + WAIT_S
                while text not in screen_text(app):
                    assert time.monotonic() < deadline, screen_text(app)
                    await pilot.pause(0.05)
                page_sees.append(text)

            await shows("0 groups")
            cluster.nodes[0].kill()
            await shows("trying again: cannot reach")
            await pilot.press("p")  # the page still works
            await shows("PAUSED")
            await pilot.press("p")
            await asyncio.to_thread(cluster.nodes[0].start)
            deadline = time.monotonic() + WAIT_S
            while "trying again" in screen_text(app):
                assert time.monotonic() < deadline, screen_text(app)
                await pilot.pause(0.05)
        app.sampling.join(WAIT_S)

    with brokers.admin() as client:
        asyncio.run(page(Sampler(brokers, client)))
        assert len(page_sees) == 3
    with pytest.raises((Failed, RuntimeError)):
        Sampler(brokers, client).sample()  # closed


def run_top(cluster: Any, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cykafka", "top", "-b", cluster.bootstrap_servers, *options]
    environment = {**os.environ, "XDG_CONFIG_HOME": "/nonexistent"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT_S, check=False, env=environment
    )


def test_json_has_an_object_for_each_partition(
    commit: Callable[..., None], fill: Fill, cluster: Any, topic: str, group: str
) -> None:
    fill(topic, 9, 0)
    commit(group, topic, 4, 0)
    done = run_top(cluster, "--group", group, "--json")

    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"group": group, "topic": topic, "partition": number, "committed": committed, "end": end,
         "lag": end - committed, "client_id": None, "state": "empty", "error": None}
        for number, committed, end in ((0, 4, 9), (1, 0, 0))
    ]  # fmt: skip


def test_once_prints_a_table(
    commit: Callable[..., None], fill: Fill, cluster: Any, topic: str, group: str
) -> None:
    fill(topic, 9, 0)
    commit(group, topic, 4)
    done = run_top(cluster, "--group", group, "--topic", f"{topic[:-1]}*", "--once")

    assert (done.returncode, done.stderr) == (0, "")
    header, row = done.stdout.splitlines()
    assert header.split() == [
        "group", "topic", "partition", "committed", "end", "lag", "client_id", "state", "error"
    ]  # fmt: skip
    assert row.split() == [group, topic, "0", "4", "9", "5", "-", "empty", "-"]


def test_page_without_a_terminal_is_refused(cluster: Any) -> None:
    done = run_top(cluster)

    assert (done.returncode, done.stdout) == (2, "")
    assert "the page needs a terminal; use --once or --json" in done.stderr


@pytest.mark.parametrize(
    ("keys", "status"),
    [(b"q", 0), (b"\xff", 1)],
    ids=["quit", "not UTF-8, for Textual an error"],
)
def test_page_runs_in_a_terminal_of_80_columns(
    keys: bytes,
    status: int,
    commit: Callable[..., None],
    fill: Fill,
    cluster: Any,
    topic: str,
    group: str,
) -> None:
    fill(topic, 9, 0)
    commit(group, topic, 4)
    import pty

    command = [sys.executable, "-m", "cykafka", "top", "-b", cluster.bootstrap_servers,
               "--group", group, "--interval", "0.2"]  # fmt: skip
    main, terminal = pty.openpty()
    environment = {
        **os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24",
        "XDG_CONFIG_HOME": "/nonexistent",
    }  # fmt: skip
    process = subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    try:
        written = b""
        while b"empty" not in written:  # the state of the group, in the line of details
            written += os.read(main, 65536)
        os.write(main, keys)
        while process.poll() is None:
            try:
                written += os.read(main, 65536)
            except OSError:  # the page has closed the terminal
                process.wait(WAIT_S)
        assert process.returncode == status
        assert (b"Traceback" in written) == (status != 0)
    finally:
        process.kill()
        process.wait(WAIT_S)
        os.close(main)
