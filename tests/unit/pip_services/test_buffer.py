"""The local queue delivers every message, and no commit passes an unfinished one."""

from __future__ import annotations

import threading
import time

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from repeated import examples

from pip_services4_kafka.queues._buffer import Buffer
from pip_services4_kafka.queues._partition import Lease, Partition
from pip_services4_kafka.queues._progress import BUFFERED, RETRY

NEVER = threading.Event()


class Broker:
    """A partition's log, and the committed offset of the group."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.committed = 0
        self.fetched = 0  # the next offset that the consumer fetches


class Model(RuleBasedStateMachine):
    """A queue in commit mode: `done` has the messages that the application completed."""

    finish_on_take = False

    def __init__(self) -> None:
        super().__init__()
        self.buffer = Buffer(50, self.finish_on_take)
        self.brokers = {0: Broker(), 1: Broker()}
        self.subscription = object()
        self.buffer.assign(self.subscription, [0, 1])
        self.handed: set[tuple[int, int]] = set()
        self.done: set[tuple[int, int]] = set()
        self.in_hand: list[tuple[int, int]] = []
        self.leases: list[Lease] = []

    def note(self, partition: Partition, envelope: str) -> tuple[int, int]:
        number, offset = (int(part) for part in envelope.split("/"))
        assert number == partition.number
        self.handed.add((number, offset))
        return number, offset

    @rule(number=st.integers(0, 1), steps=st.lists(st.integers(1, 3), min_size=1, max_size=9))
    def write_and_fetch(self, number: int, steps: list[int]) -> None:
        broker = self.brokers[number]
        offset = broker.log[-1] if broker.log else -1
        for step in steps:
            offset += step
            broker.log.append(offset)
        self.fetch(number)

    def fetch(self, number: int) -> None:
        broker = self.brokers[number]
        offsets = [o for o in broker.log if o >= broker.fetched]
        if offsets:
            self.buffer.add(self.subscription, number, offsets, [f"{number}/{o}" for o in offsets])
            broker.fetched = offsets[-1] + 1

    @rule()
    def take(self) -> None:
        expected = self.buffer.peek(1)
        taken = self.buffer.take(0)
        assert (taken is None) == (not expected)
        if taken is not None:
            assert taken.envelope == expected[0]
            message = self.note(taken.partition, taken.envelope)
            self.in_hand.append(message)
            if self.finish_on_take:
                self.done.add(message)

    @rule(limit=st.integers(1, 6))
    def lease(self, limit: int) -> None:
        if self.buffer.peek(1):
            lease = self.buffer.lease(limit, NEVER)
            assert lease is not None
            busy = [other.partition.number for other in self.leases if other.partition.owned]
            assert lease.partition.number not in busy
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), fails=st.booleans())
    def work(self, data: st.DataObject, fails: bool) -> None:
        """A worker handles part of its lease, fails or not at the last, and returns the rest."""
        lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        count = data.draw(st.integers(0, len(lease.envelopes)))
        for place in range(count):
            envelope = next(lease.iterator)
            message = self.note(lease.partition, envelope)
            if fails and place == count - 1:
                self.buffer.retry(lease, place, envelope, 0)
            elif self.finish_on_take:
                self.done.add(message)
            elif lease.partition.owned:
                self.in_hand.append(message)
            if data.draw(st.booleans()):
                self.positions_never_pass_unfinished_messages()
        self.buffer.release(lease, count)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), back=st.booleans())
    def complete_or_abandon(self, data: st.DataObject, back: bool) -> None:
        number, offset = self.in_hand.pop(data.draw(st.integers(0, len(self.in_hand) - 1)))
        if back:
            if self.buffer.abandon(number, offset, f"{number}/{offset}"):
                self.done.discard((number, offset))
        else:
            self.done.add((number, offset))
            self.buffer.settle(number, offset)

    @rule(number=st.integers(0, 1), crash=st.booleans())
    def move(self, number: int, crash: bool) -> None:
        """The partition is revoked (or lost, without a commit) and assigned again."""
        broker = self.brokers[number]
        for partition in self.buffer.revoke(self.subscription, [number]):
            if not crash and partition.position is not None:
                broker.committed = partition.position
        if crash and self.finish_on_take:
            # The messages abandoned after their commit are lost with the process.
            self.done |= {(number, offset) for offset in broker.log if offset < broker.committed}
        self.buffer.assign(self.subscription, [number])
        broker.fetched = broker.committed
        self.fetch(number)

    @rule()
    def commit(self) -> None:
        for partition, position in self.buffer.positions():
            self.brokers[partition.number].committed = position
        self.positions_never_pass_unfinished_messages()

    @rule()
    def clear(self) -> None:
        for partition in self.buffer.partitions():
            for offset, state in partition.unfinished():
                if state in (BUFFERED, RETRY):
                    self.handed.add((partition.number, offset))
                    self.done.add((partition.number, offset))
        self.buffer.clear()
        assert self.buffer.peek(1) == []

    @invariant()
    def positions_never_pass_unfinished_messages(self) -> None:
        for partition in self.buffer.partitions():
            position = partition.position
            if position is not None:
                log = self.brokers[partition.number].log
                skipped = {o for o in log if o < position} - {
                    o for n, o in self.done if n == partition.number
                }
                assert not skipped

    @invariant()
    def commits_never_pass_unfinished_messages(self) -> None:
        for number, broker in self.brokers.items():
            assert all((number, o) in self.handed for o in broker.log if o < broker.committed)

    def teardown(self) -> None:
        for lease in self.leases:
            self.buffer.release(lease, 0)
        while (taken := self.buffer.take(0)) is not None:
            self.note(taken.partition, taken.envelope)
        for number, broker in self.brokers.items():
            assert all((number, offset) in self.handed for offset in broker.log)


class Autocommit(Model):
    """A delivered message counts as completed, unless it is abandoned."""

    finish_on_take = True


Model.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
Autocommit.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestCommitMode = Model.TestCase
TestAutocommit = Autocommit.TestCase


def filled(count: int = 10, max_pending: int = 100, finish: bool = False) -> Buffer:
    buffer = Buffer(max_pending, finish)
    buffer.assign(None, [0])
    buffer.add(None, 0, range(count), [f"m{i}" for i in range(count)])
    return buffer


def test_abandoned_message_is_delivered_next_and_alone() -> None:
    buffer = filled()
    names = [buffer.take(0).envelope for _ in range(3)]  # type: ignore[union-attr]
    assert buffer.abandon(0, 1, names[1])
    assert buffer.peek(3) == ["m1", "m3", "m4"]
    again = [buffer.take(0).envelope for _ in range(3)]  # type: ignore[union-attr]
    assert again == ["m1", "m3", "m4"]


def test_delayed_message_is_delivered_when_due_and_others_before_it() -> None:
    buffer = filled(2)
    lease = buffer.lease(1, NEVER)
    assert lease is not None
    assert buffer.count_failure(lease, 0) == 1
    buffer.retry(lease, 0, "m0", 0.05)
    buffer.release(lease, 1)
    begin = time.monotonic()
    assert [buffer.take(1).envelope for _ in range(2)] == ["m1", "m0"]  # type: ignore[union-attr]
    assert 0.05 <= time.monotonic() - begin < 5
    assert buffer.take(0) is None


def test_message_abandoned_twice_is_delivered_once() -> None:
    buffer = filled(1)
    buffer.take(0)
    assert buffer.abandon(0, 0, "m0") == 1
    assert buffer.abandon(0, 0, "m0") == 0
    assert buffer.take(0) is not None
    assert buffer.take(0) is None


def test_full_partition_is_paused_until_it_is_half_empty() -> None:
    buffer = filled(10, max_pending=10, finish=True)
    begin = time.monotonic()
    assert [p.number for p in buffer.wait_for_room(0.02)] == [0]
    assert time.monotonic() - begin >= 0.02
    assert buffer.wait_for_room(1) == []  # it is paused
    for _ in range(4):
        buffer.take(0)
    assert buffer.with_room() == []
    buffer.take(0)
    assert [p.number for p in buffer.with_room()] == [0]
    assert buffer.with_room() == []


def test_uncompleted_messages_pause_their_partition() -> None:
    buffer = filled(10, max_pending=10)
    while buffer.take(0) is not None:
        pass
    assert [p.number for p in buffer.wait_for_room(0)] == [0]
    for offset in range(5):
        buffer.settle(0, offset)
    assert [p.number for p in buffer.with_room()] == [0]


def test_reader_continues_as_soon_as_there_is_room() -> None:
    buffer = filled(10, max_pending=10, finish=True)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(buffer.wait_for_room(10)))
    thread.start()
    while buffer.take(0) is not None:
        pass
    thread.join(5)
    assert found == [[]]


def test_partitions_share_max_pending() -> None:
    buffer = Buffer(10, True)
    buffer.assign(None, [0, 1])
    buffer.add(None, 0, range(5), [None] * 5)
    assert [p.number for p in buffer.wait_for_room(0)] == [0]


def test_close_wakes_all_waiting_threads() -> None:
    buffer = Buffer(10, True)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(buffer.take(30))),
        threading.Thread(target=lambda: found.append(buffer.lease(1, NEVER))),
    ]
    for thread in threads:
        thread.start()
    buffer.close()
    for thread in threads:
        thread.join(5)
    assert found == [None, None]


def test_revoked_lease_stops_and_its_handled_messages_count() -> None:
    buffer = filled(10, finish=True)
    lease = buffer.lease(10, NEVER)
    assert lease is not None
    for _ in range(4):
        next(lease.iterator)
    (gone,) = buffer.revoke(None, [0])
    assert lease.stopped
    assert gone.position == 3  # the fourth is still in progress
    buffer.release(lease, 4)
    assert buffer.take(0) is None


def test_next_offsets_are_available_during_a_lease() -> None:
    buffer = filled(10)
    lease = buffer.lease(10, NEVER)
    assert lease is not None
    next(lease.iterator)
    assert buffer.next_offsets() == {0: (1, 0)}


def test_partitions_take_turns() -> None:
    buffer = Buffer(100, True)
    buffer.assign(None, [0, 1])
    for first in (0, 2):
        for number in (0, 1):
            buffer.add(None, number, range(first, first + 2), [f"{number}/{first}"] * 2)
    peeked = buffer.peek(100)
    taken = [buffer.take(0).envelope for _ in range(8)]  # type: ignore[union-attr]
    assert taken == peeked
    assert taken == ["0/0"] * 2 + ["1/0"] * 2 + ["0/2"] * 2 + ["1/2"] * 2


def test_last_attempt_is_not_redelivered() -> None:
    buffer = filled(1)
    for attempt in (1, 2):
        assert buffer.take(0) is not None
        assert buffer.abandon(0, 0, "m0", limit=2) == attempt
    assert buffer.take(0) is None
    assert buffer.settle(0, 0) is not None


def test_paused_partition_that_was_reset_is_resumed() -> None:
    buffer = filled(10, max_pending=10)
    assert len(buffer.wait_for_room(0)) == 1
    buffer.forget(None, 0)
    assert buffer.peek(1) == []
    assert [p.number for p in buffer.with_room()] == [0]


def test_completed_message_cannot_be_abandoned() -> None:
    buffer = filled(2)
    assert buffer.take(0) is not None
    assert buffer.settle(0, 0) is not None
    assert buffer.abandon(0, 0, "m0") == 0
    assert buffer.position(buffer.partitions()[0]) == 1
