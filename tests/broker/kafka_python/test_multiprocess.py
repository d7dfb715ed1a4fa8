"""MultiProcessConsumer: processes, and what happens if they are killed."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixture_types import RunScript

from cykafka.compat.kafka_python import MultiProcessConsumer, create_message
from cykafka.compat.kafka_python.common import (
    ConsumerFetchSizeTooSmall,
    OffsetFetchRequest,
    ProduceRequest,
)

Send = Callable[..., list[bytes]]
Make = Callable[..., Any]

# How the processes are chosen, and how many there are for four partitions.
WAYS = [
    ({"num_procs": 0}, 0),
    ({}, 1),
    ({"num_procs": 2}, 2),
    ({"num_procs": 7}, 4),
    ({"partitions_per_proc": 3}, 2),
    ({"partitions_per_proc": 1}, 4),
]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("options", "count"), WAYS)
def test_reads_every_message_once(
    send: Send, make_consumer: Make, options: dict[str, int], count: int
) -> None:
    sent = [message for number in range(4) for message in send(number, range(number, 400, 4))]
    consumer = make_consumer(MultiProcessConsumer, **options)
    pids = [process.pid for process in consumer.procs]
    assert len(set(pids)) == count
    assert f"consumers={count}" in repr(consumer)
    found = consumer.get_messages(150, timeout=60)
    assert len(found) == 150
    found += list(consumer)
    assert Counter(item.message.value for item in found) == Counter(sent)
    assert consumer.get_messages(1, timeout=0.2) == []
    consumer.stop()
    assert not any(map(is_running, pids))


@pytest.mark.parametrize("processes", [0, 2])
def test_group_goes_on_at_its_commit(
    send: Send, make_consumer: Make, client: Any, topic: str, group: str, processes: int
) -> None:
    send(0, range(20))
    consumer = make_consumer(
        MultiProcessConsumer, group=group, num_procs=processes, auto_commit_every_n=5
    )
    consumer.provide_partition_info()
    assert {partition for partition, _ in consumer.get_messages(7, timeout=60)} == {0}
    (found,) = client.send_offset_fetch_request(group, [OffsetFetchRequest(topic, 0)])
    assert found.offset == 7
    consumer.get_messages(1, timeout=60)
    consumer.stop()
    again = make_consumer(MultiProcessConsumer, group=group, num_procs=processes)
    assert [item.offset for item in again.get_messages(12, timeout=60)] == list(range(8, 20))


@pytest.mark.parametrize("processes", [0, 1])
def test_waits_as_long_as_asked(send: Send, make_consumer: Make, processes: int) -> None:
    send(2, range(3))
    consumer = make_consumer(MultiProcessConsumer, num_procs=processes)
    assert len(consumer.get_messages(10, block=3, timeout=60)) == 3
    begun = time.monotonic()
    assert consumer.get_messages(10, timeout=0.5) == []
    assert 0.4 <= time.monotonic() - begun < 5
    begun = time.monotonic()
    assert consumer.get_messages(10, block=False) == []
    assert time.monotonic() - begun < 2
    begun = time.monotonic()
    assert list(consumer) == []
    assert 0.9 <= time.monotonic() - begun < 5


def test_killed_process_is_replaced(send: Send, make_consumer: Make) -> None:
    consumer = make_consumer(MultiProcessConsumer, num_procs=2)
    sent: list[bytes] = []
    found: list[bytes] = []
    for turn in range(3):
        for number in range(4):
            sent += send(
                number, range(1000 * turn + 100 * number, 1000 * turn + 100 * number + 90)
            )
        found += [item.message.value for item in consumer.get_messages(100, timeout=60)]
        consumer.procs[turn % 2].kill()
    while len(found) < len(sent):
        more = consumer.get_messages(len(sent) - len(found), timeout=60)
        assert more
        found += [item.message.value for item in more]
    assert Counter(found) == Counter(sent)


def test_processes_end_with_their_consumer(
    script_command: Callable[..., list[str]], cluster: Any, topic: str, send: Send
) -> None:
    """Also if it is killed, and while they wait for room."""
    import subprocess

    send(0, range(5000))
    program = f"""
import sys, time
from cykafka.compat.kafka_python import KafkaClient, MultiProcessConsumer
consumer = MultiProcessConsumer(KafkaClient({cluster.bootstrap_servers!r}), None, {topic!r},
                                num_procs=2)
consumer.get_messages(1, timeout=60)
print(*[each.pid for each in consumer.procs], flush=True)
time.sleep(600)
"""
    with subprocess.Popen(script_command(program), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        process.kill()
    deadline = time.monotonic() + 30
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_script_without_a_main_guard_works(
    run_script: RunScript, cluster: Any, topic: str, send: Send
) -> None:
    send(1, range(3))
    done = run_script(
        f"""
print("begun")
from cykafka.compat.kafka_python import KafkaClient, MultiProcessConsumer
client = KafkaClient({cluster.bootstrap_servers!r})
for message in MultiProcessConsumer(client, None, {topic!r}, num_procs=2):
    print(message.message.value)
"""
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["begun", "b'0'", "b'1'", "b'2'"]


@pytest.mark.parametrize("processes", [0, 2])
def test_error_of_a_process_is_raised_after_the_messages_before_it(
    client: Any, topic: str, make_consumer: Make, group: str, processes: int
) -> None:
    huge = create_message(b"x" * 100_000)
    client.send_produce_request([ProduceRequest(topic, 0, [create_message(b"1"), huge])])
    consumer = make_consumer(MultiProcessConsumer, num_procs=processes, group=group)
    found = consumer.get_messages(5, block=1, timeout=60)
    assert [item.message.value for item in found] == [b"1"]
    with pytest.raises(ConsumerFetchSizeTooSmall):
        consumer.get_messages(1, timeout=60)
    assert consumer.offsets[0] == 1
    unlimited = make_consumer(
        MultiProcessConsumer, num_procs=processes, max_buffer_size=None, group=None
    )
    assert len(unlimited.get_messages(2, timeout=60)) == 2


def test_stop_ends_a_process_that_is_stopped(make_consumer: Make) -> None:
    consumer = make_consumer(MultiProcessConsumer)
    (process,) = consumer.procs
    os.kill(process.pid, signal.SIGSTOP)
    begun = time.monotonic()
    consumer.stop()
    assert time.monotonic() - begun < 20
    assert not is_running(process.pid)


def test_option_that_cannot_be_pickled_leaves_no_process(make_consumer: Make) -> None:
    before = children()
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        make_consumer(MultiProcessConsumer, iter_timeout=lambda: 1)
    assert children() == before


def children() -> set[str]:
    """The processes that this one has started."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
