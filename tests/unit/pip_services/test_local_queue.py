"""The local queue hands over every message, and no commit passes an unfinished one."""

from __future__ import annotations

import threading
import time

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from repeated import examples

from pip_services4_kafka.queues._listener import Listener
from pip_services4_kafka.queues._local_queue import Backoff, LocalQueue
from pip_services4_kafka.queues._partition import Lease, Partition, Range

NEVER = threading.Event()
AT_ONCE = Backoff(0, 0)


class Broker:
    """A partition's log, and what the group has committed."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self.committed = 0
        self.ranges: list[Range] = []
        self.fetched = 0  # the next offset that the consumer fetches


class Model(RuleBasedStateMachine):
    """A queue without autocommit: `done` has the messages that the application completed."""

    finish_on_take = False

    def __init__(self) -> None:
        super().__init__()
        self.queue = LocalQueue(50, self.finish_on_take, AT_ONCE)
        self.brokers = {0: Broker(), 1: Broker()}
        self.queue.assign({0: 0, 1: 0})
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
            self.queue.add(number, offsets, [f"{number}/{o}" for o in offsets])
            broker.fetched = offsets[-1] + 1

    @rule(number=st.integers(0, 1))
    def write_and_hold(self, number: int) -> None:
        """A message that the application gets alone, before those that wait."""
        broker = self.brokers[number]
        offset = broker.log[-1] + 1 if broker.log else 0
        broker.log.append(offset)
        broker.fetched = offset + 1
        self.queue.expect(number, offset)
        assert self.queue.add_handed(number, offset) is not None
        self.handed.add((number, offset))
        self.in_hand.append((number, offset))

    @rule()
    def take(self) -> None:
        expected = self.queue.peek(1)
        taken = self.queue.take(0)
        assert (taken is None) == (not expected)
        if taken is not None:
            assert taken.envelope == expected[0]
            message = self.note(taken.partition, taken.envelope)
            assert message == (taken.partition.number, taken.offset)
            self.in_hand.append(message)
            if self.finish_on_take:
                self.done.add(message)

    @rule(limit=st.integers(1, 6))
    def lease(self, limit: int) -> None:
        if self.queue.peek(1):
            lease = self.queue.lease(limit, NEVER)
            assert lease is not None
            busy = [other.partition.number for other in self.leases if other.partition.owned]
            assert lease.partition.number not in busy
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), fails=st.booleans())
    def work(self, data: st.DataObject, fails: bool) -> None:
        """A worker handles part of its lease, fails or not at the last, and returns the rest."""
        lease = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        before = lease.begun()
        count = data.draw(st.integers(before, len(lease.envelopes)))
        for place in range(before, count):
            envelope = next(lease.iterator)
            number, offset = message = self.note(lease.partition, envelope)
            if fails and place == data.draw(st.integers(place, count - 1)):
                if lease.partition.owned:
                    self.queue.fail(number, offset, envelope, 0, False)
            elif self.finish_on_take:
                self.done.add(message)
            elif lease.partition.owned:
                self.in_hand.append(message)
            if data.draw(st.booleans()):
                self.positions_never_pass_unfinished_messages()
        if data.draw(st.booleans()):
            self.leases.append(lease)  # it goes on later, perhaps after a revocation
        else:
            self.queue.release(lease, count)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), back=st.booleans())
    def complete_or_abandon(self, data: st.DataObject, back: bool) -> None:
        number, offset = self.in_hand.pop(data.draw(st.integers(0, len(self.in_hand) - 1)))
        if back:
            if self.queue.fail(number, offset, f"{number}/{offset}", 0, True):
                self.done.discard((number, offset))
        else:
            self.done.add((number, offset))
            self.queue.finish(number, offset)

    @rule(number=st.integers(0, 1), data=st.data())
    def complete_before_it_comes(self, number: int, data: st.DataObject) -> None:
        """The application has the message from before a rebalance."""
        (partition,) = (p for p in self.queue.partitions() if p.number == number)
        waiting = {offset for run in partition.waiting for offset in run.offsets[run.next :]}
        if waiting:
            offset = data.draw(st.sampled_from(sorted(waiting)))
            self.handed.add((number, offset))
            self.done.add((number, offset))
            self.queue.finish(number, offset)

    @rule(number=st.integers(0, 1), crash=st.booleans())
    def move(self, number: int, crash: bool) -> None:
        """The partition is revoked (or lost, without a commit) and assigned again."""
        broker = self.brokers[number]
        for partition in self.queue.revoke([number]):
            if not crash:
                self.commit_one(partition)
        if crash:
            # The messages abandoned after their commit are lost with the process.
            self.done |= {
                (number, offset)
                for offset in broker.log
                if offset < broker.committed or any(a <= offset < b for a, b in broker.ranges)
            }
        self.queue.assign({number: broker.committed}, {number: broker.ranges})
        broker.fetched = broker.committed
        self.fetch(number)

    def commit_one(self, partition: Partition) -> None:
        broker = self.brokers[partition.number]
        position, broker.ranges, _ = self.queue.progress(partition)
        broker.committed = partition.confirmed = position or 0

    @rule()
    def commit(self) -> None:
        for partition in self.queue.partitions():
            self.commit_one(partition)
        self.positions_never_pass_unfinished_messages()

    @rule()
    def clear(self) -> None:
        for partition in self.queue.partitions():
            left = {offset for offsets in partition.left() for offset in offsets}
            cleared = left | partition.retries.keys()
            self.handed |= {(partition.number, offset) for offset in cleared}
            self.done |= {(partition.number, offset) for offset in cleared}
        self.queue.clear()
        assert self.queue.peek(1) == []

    @invariant()
    def positions_never_pass_unfinished_messages(self) -> None:
        for partition in self.queue.partitions():
            log = self.brokers[partition.number].log
            done = {offset for number, offset in self.done if number == partition.number}
            for start, stop in (0, partition.position or 0), *partition.ranges():
                assert {offset for offset in log if start <= offset < stop} <= done

    @invariant()
    def commits_never_pass_unfinished_messages(self) -> None:
        for number, broker in self.brokers.items():
            assert all((number, o) in self.handed for o in broker.log if o < broker.committed)

    def teardown(self) -> None:
        for lease in self.leases:
            self.queue.release(lease, lease.begun())
        while (taken := self.queue.take(0)) is not None:
            self.note(taken.partition, taken.envelope)
        for number, broker in self.brokers.items():
            assert all((number, offset) in self.handed for offset in broker.log)


class Autocommit(Model):
    """A message that was handed over counts as completed, unless it is abandoned."""

    finish_on_take = True


Model.TestCase.settings = settings(
    max_examples=examples(300), stateful_step_count=40, deadline=None
)
Autocommit.TestCase.settings = Model.TestCase.settings
TestWithoutAutocommit = Model.TestCase
TestAutocommit = Autocommit.TestCase


def filled(
    count: int = 10, max_pending: int = 100, finish: bool = False, backoff: Backoff = AT_ONCE
) -> LocalQueue:
    queue = LocalQueue(max_pending, finish, backoff)
    queue.assign({0: None})
    queue.add(0, range(count), [f"m{i}" for i in range(count)])
    return queue


def taken(queue: LocalQueue, count: int = 1, timeout: float = 0) -> list[str]:
    found = [queue.take(timeout) for _ in range(count)]
    return [message.envelope for message in found if message is not None]


def test_abandoned_message_is_handed_over_once_when_its_delay_is_over() -> None:
    queue = filled(3, backoff=Backoff(0.05, 10))
    assert taken(queue, 2) == ["m0", "m1"]
    begin = time.monotonic()
    assert queue.fail(0, 1, "m1", 0, True) == 1
    assert queue.fail(0, 1, "m1", 0, True) == 0  # it is abandoned already
    assert taken(queue, 3, timeout=0.01) == ["m2"]
    assert taken(queue, 1, timeout=5) == ["m1"]
    assert 0.05 <= time.monotonic() - begin < 5
    assert taken(queue) == []


def test_delays_grow_up_to_the_longest() -> None:
    backoff = Backoff(0.2, 10)
    assert [backoff.delay(attempts) for attempts in (1, 2, 3, 6, 7, 10_000)] == [
        0.2,
        0.4,
        0.8,
        6.4,
        10,
        10,
    ]


def test_message_that_always_fails_starves_no_other() -> None:
    queue = filled(100)
    failed, others = 0, 0
    while others < 99:
        (message,) = taken(queue)
        if message == "m0":
            queue.fail(0, 0, message, 0, True)
            failed += 1
        else:
            others += 1
    assert failed <= 100


def test_full_partition_is_paused_until_it_is_half_empty() -> None:
    queue = filled(10, max_pending=10, finish=True)
    begin = time.monotonic()
    assert [p.number for p in queue.wait_for_room(0.02)] == [0]
    assert time.monotonic() - begin >= 0.02
    assert queue.wait_for_room(1) == []  # it is paused
    taken(queue, 4)
    assert queue.with_room() == []
    taken(queue)
    assert [p.number for p in queue.with_room()] == [0]
    assert queue.with_room() == []


def test_uncompleted_messages_pause_their_partition() -> None:
    queue = filled(10, max_pending=10)
    assert len(taken(queue, 10)) == 10
    assert [p.number for p in queue.wait_for_room(0)] == [0]
    for offset in range(5):
        queue.finish(0, offset)
    assert [p.number for p in queue.with_room()] == [0]


def test_session_continues_as_soon_as_there_is_room() -> None:
    queue = filled(10, max_pending=10, finish=True)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(queue.wait_for_room(10)))
    thread.start()
    taken(queue, 10)
    thread.join(5)
    assert found == [[]]


def test_partitions_share_max_pending() -> None:
    queue = LocalQueue(10, True)
    queue.assign({0: None, 1: None})
    queue.add(0, range(5), [None] * 5)
    assert [p.number for p in queue.wait_for_room(0)] == [0]


def test_close_wakes_all_waiting_threads() -> None:
    queue = LocalQueue(10, True)
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(queue.take(30))),
        threading.Thread(target=lambda: found.append(queue.lease(1, NEVER))),
    ]
    for thread in threads:
        thread.start()
    queue.close()
    for thread in threads:
        thread.join(5)
    assert found == [None, None]


def test_revoked_lease_stops_and_its_handled_messages_count() -> None:
    queue = filled(10, finish=True)
    lease = queue.lease(10, NEVER)
    assert lease is not None
    for _ in range(4):
        next(lease.iterator)
    (gone,) = queue.revoke([0])
    assert lease.stopped
    assert gone.position == 3  # the fourth is still in progress
    queue.release(lease, 4)
    assert taken(queue) == []


def test_next_offset_is_known_during_a_lease() -> None:
    queue = filled(10)
    lease = queue.lease(10, NEVER)
    assert lease is not None
    next(lease.iterator)
    assert lease.partition.next_offset() == 1


def test_leased_messages_that_were_cleared_do_not_come_back() -> None:
    queue = filled(10)
    lease = queue.lease(5, NEVER)
    assert lease is not None
    next(lease.iterator)
    queue.clear()
    assert lease.stopped
    queue.release(lease, 1)
    assert taken(queue) == []
    assert lease.partition.position == 0  # the application holds this one
    assert queue.finish(0, 0) is not None
    assert lease.partition.position == 10


def test_partitions_take_turns() -> None:
    queue = LocalQueue(100, True)
    queue.assign({0: None, 1: None})
    for first in (0, 2):
        for number in (0, 1):
            queue.add(number, range(first, first + 2), [f"{number}/{first}"] * 2)
    peeked = queue.peek(100)
    assert taken(queue, 8) == peeked
    assert peeked == ["0/0"] * 2 + ["1/0"] * 2 + ["0/2"] * 2 + ["1/2"] * 2


def test_last_attempt_is_not_handed_over_again() -> None:
    queue = filled(1)
    for attempt in (1, 2):
        assert taken(queue) == ["m0"]
        assert queue.fail(0, 0, "m0", 2, True) == attempt
    assert taken(queue) == []
    assert queue.finish(0, 0) is not None


def test_message_is_unfinished_until_it_is_a_dead_letter() -> None:
    queue = filled(1, finish=True)
    assert taken(queue) == ["m0"]
    assert queue.partitions()[0].position == 1
    assert queue.fail(0, 0, "m0", 1, True) == 1
    assert taken(queue) == []
    assert queue.partitions()[0].position == 0


def again(queue: LocalQueue, committed: int) -> list[str]:
    """What comes after a rebalance that has left the partition here."""
    queue.revoke([0])
    queue.assign({0: committed})
    queue.add(0, range(committed, 6), [f"m{i}" for i in range(committed, 6)])
    return taken(queue, 6)


def test_progress_of_this_process_survives_a_rebalance_without_a_commit() -> None:
    queue = filled(6)
    queue.partitions()[0].confirmed = 0
    assert taken(queue, 5) == [f"m{i}" for i in range(5)]
    for offset in (0, 1, 3):
        queue.finish(0, offset)
    assert queue.fail(0, 2, "m2", 9, False) == 1
    assert again(queue, 0) == ["m2", "m4", "m5"]
    assert queue.fail(0, 2, "m2", 9, False) == 2  # the attempts go on as well
    assert again(queue, 0) == ["m2", "m4", "m5"]


def test_offset_that_another_client_has_committed_counts() -> None:
    queue = filled(6)
    queue.partitions()[0].confirmed = 3
    assert taken(queue, 6) == [f"m{i}" for i in range(6)]
    for offset in range(6):
        queue.finish(0, offset)
    assert again(queue, 1) == [f"m{i}" for i in range(1, 6)]


def test_last_failure_in_a_slice_is_not_finished_with_it() -> None:
    queue = filled(3, finish=True)
    lease = queue.lease(3, NEVER)
    assert lease is not None
    for offset in range(3):
        envelope = next(lease.iterator)
        if offset == 1:
            assert queue.fail(0, offset, envelope, 1, False) == 1
    queue.release(lease, 3)
    assert queue.progress(lease.partition)[:2] == (1, [(2, 3)])
    assert queue.finish(0, 1) is not None  # it is a dead letter now
    assert queue.progress(lease.partition)[:2] == (3, [])


def test_message_that_fails_before_a_revocation_is_not_finished() -> None:
    queue = filled(8, finish=True)
    lease = queue.lease(8, NEVER)
    assert lease is not None
    for offset in range(6):
        envelope = next(lease.iterator)
        if offset == 3:
            queue.fail(0, offset, envelope, 0, False)
    (gone,) = queue.revoke([0])
    assert queue.progress(gone)[:2] == (3, [(4, 5)])
    queue.release(lease, 6)
    assert queue.progress(gone)[:2] == (3, [(4, 5)])


def test_message_that_is_completed_while_it_waits_does_not_come() -> None:
    queue = filled(3)
    assert queue.finish(0, 1) is not None
    assert queue.peek(9) == ["m0", "m2"]
    assert taken(queue, 3) == ["m0", "m2"]
    assert queue.take(0) is None


def test_autocommit_counts_the_attempts_of_finished_messages() -> None:
    queue = filled(1, finish=True)
    for attempt in (1, 2, 3):
        assert taken(queue) == ["m0"]
        assert queue.partitions()[0].position == 1
        assert queue.fail(0, 0, "m0", 0, True) == attempt
        assert queue.partitions()[0].position == 0


def test_paused_partition_that_was_restarted_is_resumed() -> None:
    queue = filled(10, max_pending=10)
    assert len(queue.wait_for_room(0)) == 1
    queue.restart(0)
    assert queue.peek(1) == []
    assert [p.number for p in queue.with_room()] == [0]


def test_completed_message_cannot_be_abandoned() -> None:
    queue = filled(2)
    taken(queue)
    assert queue.finish(0, 0) is not None
    assert queue.fail(0, 0, "m0", 0, True) == 0
    assert queue.partitions()[0].position == 1


def test_offsets_of_a_new_log_start_anew() -> None:
    queue = filled(10, finish=True)
    taken(queue, 10)
    queue.add(0, range(3), ["n0", "n1", "n2"])
    assert taken(queue, 4) == ["n0", "n1", "n2"]


def test_messages_fetched_again_after_an_unfinished_one_come_once() -> None:
    queue = filled(10)
    assert taken(queue, 5) == ["m0", "m1", "m2", "m3", "m4"]
    queue.add(0, range(3, 12), [f"m{i}" for i in range(3, 12)])
    assert taken(queue, 100) == [f"m{i}" for i in range(5, 12)]


def test_finished_messages_that_no_commit_covers_are_bounded() -> None:
    """With many gaps they would all come again after a restart."""
    queue = LocalQueue(1000, False)
    queue.assign({0: 0})
    fetched = 0
    while not (full := queue.wait_for_room(0)):
        queue.add(0, range(fetched, fetched + 100), list(range(fetched, fetched + 100)))
        for offset in (message.offset for _ in range(100) if (message := queue.take(0))):
            if offset >= 1000 or offset % 2:  # 500 are never completed
                queue.finish(0, offset)
        fetched += 100
        assert fetched < 20_000
    (partition,) = full
    assert 1000 <= partition.uncovered < 1200
    assert queue.with_room() == []
    for offset in range(0, 1000, 2):
        queue.finish(0, offset)
    assert queue.with_room() == [partition]


def test_listener_that_was_interrupted_before_it_began_keeps_nobody_waiting() -> None:
    local = filled(1)
    ended: list[Listener] = []
    listener = Listener(local, None, None, lambda *_: None, ended.append)
    assert listener.wait(60)
    listener.end()
    assert ended == [listener]
    listener.end()
    assert ended == [listener]
