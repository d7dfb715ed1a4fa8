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
from pip_services4_kafka.queues._partition import Lease, PartitionState, Range

NEVER = threading.Event()
AT_ONCE = Backoff(0, 0)


Message = tuple[int, int, int]  # partition, offset and the epoch in which it was written


class Broker:
    """A partition's log, and what the group has committed."""

    def __init__(self) -> None:
        self.log: dict[int, int] = {}  # the epoch of each offset
        self.end = 0
        self.epoch = 0
        self.truncated = False  # since the last assignment
        self.committed: int | None = None
        self.ranges: list[Range] = []
        self.fetched = 0  # the next offset that the consumer fetches

    def write(self, steps: list[int]) -> None:
        for step in steps:
            self.end += step
            self.log[self.end - 1] = self.epoch


class Model(RuleBasedStateMachine):
    """A queue without autocommit: `done` has the messages that the application completed."""

    finish_on_take = False

    def __init__(self) -> None:
        super().__init__()
        self.queue = LocalQueue(50, self.finish_on_take, AT_ONCE)
        self.brokers = {0: Broker(), 1: Broker()}
        self.queue.assign({0: None, 1: None})
        self.handed: set[Message] = set()
        self.done: set[Message] = set()
        self.in_hand: list[Message] = []
        self.leases: list[Lease] = []

    def assigned(self) -> dict[int, PartitionState]:
        return {partition.number: partition for partition in self.queue.partitions()}

    def note(self, envelope: str) -> Message:
        number, offset, epoch = (int(part) for part in envelope.split("/"))
        self.handed.add((number, offset, epoch))
        return number, offset, epoch

    def message(self, number: int, offset: int) -> Message:
        return number, offset, self.brokers[number].log[offset]

    @rule(number=st.integers(0, 1), steps=st.lists(st.integers(1, 3), min_size=1, max_size=9))
    def write_and_fetch(self, number: int, steps: list[int]) -> None:
        if not self.brokers[number].truncated:
            self.brokers[number].write(steps)
        self.fetch(number)

    @rule(number=st.integers(0, 1))
    def fetch(self, number: int) -> None:
        broker = self.brokers[number]
        offsets = [offset for offset in broker.log if offset >= broker.fetched]
        if offsets and number in self.assigned():
            envelopes = ["/".join(map(str, self.message(number, offset))) for offset in offsets]
            self.queue.add(number, offsets, envelopes)
            broker.fetched = broker.end

    @rule(number=st.integers(0, 1))
    def write_and_hold(self, number: int) -> None:
        """A message that the application gets alone, before those that wait."""
        broker = self.brokers[number]
        if number in self.assigned() and broker.fetched == broker.end:
            broker.write([1])
            offset = broker.end - 1
            broker.fetched = broker.end
            self.queue.expect(number, offset)
            assert self.queue.add_delivered(number, offset) is not None
            self.handed.add(self.message(number, offset))
            self.in_hand.append(self.message(number, offset))

    @rule()
    def take(self) -> None:
        expected = self.queue.peek(1)
        taken = self.queue.take(0)
        assert (taken is None) == (not expected)
        if taken is not None:
            assert taken == expected[0]
            message = self.note(taken)
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
            number, offset, _ = message = self.note(envelope)
            assert number == lease.partition.number
            if fails and place == data.draw(st.integers(place, count - 1)):
                if lease.partition.owned:
                    self.queue.fail(number, offset, envelope, 0, False)
            elif self.finish_on_take:
                self.done.add(message)
            elif lease.partition.owned:
                self.in_hand.append(message)
            if data.draw(st.booleans()):
                self.finished_offsets_are_done()
        if data.draw(st.booleans()):
            self.leases.append(lease)  # it goes on later, perhaps after a revocation
        else:
            self.queue.release(lease, count)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), back=st.booleans())
    def complete_or_abandon(self, data: st.DataObject, back: bool) -> None:
        """In a rebalance and after it too, and also if the log has changed."""
        index = data.draw(st.integers(0, len(self.in_hand) - 1))
        number, offset, _ = message = self.in_hand.pop(index)
        now = (number, offset, self.brokers[number].log.get(offset, -1))
        if now != message and (back or now in self.handed):
            return  # the application has two messages of one offset: either outcome counts
        if back:
            envelope = "/".join(map(str, message))
            if self.queue.fail(number, offset, envelope, 0, True):
                self.done.discard(message)
        else:
            self.done.add(message)
            self.queue.finish(number, offset)

    @rule(number=st.integers(0, 1), crash=st.booleans())
    def revoke(self, number: int, crash: bool) -> None:
        """The partition is revoked, or lost without a commit."""
        for partition in self.queue.revoke([number]):
            if not crash:
                self.commit_one(partition)
                continue
            # The messages abandoned after their commit are lost with the process.
            broker = self.brokers[number]
            for start, stop in ((0, broker.committed or 0), *broker.ranges):
                offsets = (offset for offset in broker.log if start <= offset < stop)
                self.done.update(self.message(number, offset) for offset in offsets)

    @rule(number=st.integers(0, 1), replaced=st.booleans(), recreated=st.booleans())
    def move(self, number: int, replaced: bool, recreated: bool) -> None:
        """A whole rebalance, which seldom comes about by single steps."""
        self.revoke(number, False)
        if replaced:
            self.replace_log(recreated, 0)
        self.assign()
        self.fetch(number)

    def revoked(self) -> list[int]:
        return sorted(self.brokers.keys() - self.assigned().keys())

    @precondition(lambda self: self.revoked())
    @rule(recreated=st.booleans(), kept=st.integers(0, 3))
    def replace_log(self, recreated: bool, kept: int) -> None:
        """The topic is created again, or its log is truncated, while others own the partition."""
        broker = self.brokers[self.revoked()[-1]]
        broker.epoch += 1
        if recreated:
            broker.log, broker.end = {}, 0
            broker.committed, broker.ranges = None, []
        else:
            broker.end = min(broker.end, (broker.committed or 0) + kept)
            broker.log = {o: epoch for o, epoch in broker.log.items() if o < broker.end}
        broker.truncated = not recreated

    @precondition(lambda self: self.revoked())
    @rule()
    def assign(self) -> None:
        for number in self.revoked():
            broker = self.brokers[number]
            reached = self.queue.reached([number]).get(number, 0)
            if max(reached, broker.ranges[-1][1] if broker.ranges else 0) > broker.end:
                self.queue.forget([number])
                broker.ranges = []  # it is committed at once
            self.queue.assign({number: broker.committed}, {number: broker.ranges})
            broker.fetched = broker.committed or 0
            broker.truncated = False

    def commit_one(self, partition: PartitionState) -> None:
        broker = self.brokers[partition.number]
        offset, ranges, _ = self.queue.progress(partition)
        if offset is not None:
            broker.committed = partition.confirmed = offset
            broker.ranges = ranges

    @rule()
    def commit(self) -> None:
        for partition in self.queue.partitions():
            self.commit_one(partition)
        self.finished_offsets_are_done()

    @rule()
    def clear(self) -> None:
        for partition in self.queue.partitions():
            left = {offset for offsets in partition.undelivered() for offset in offsets}
            cleared = left | partition.retries.keys()
            self.handed |= {self.message(partition.number, offset) for offset in cleared}
            self.done |= {self.message(partition.number, offset) for offset in cleared}
        self.queue.clear()
        assert self.queue.peek(1) == []

    @invariant()
    def finished_offsets_are_done(self) -> None:
        for number, partition in self.assigned().items():
            for start, stop in (0, partition.first_unfinished or 0), *partition.ranges():
                offsets = (o for o in self.brokers[number].log if start <= o < stop)
                assert {self.message(number, offset) for offset in offsets} <= self.done

    @invariant()
    def commits_never_pass_unfinished_messages(self) -> None:
        for number, broker in self.brokers.items():
            offsets = (offset for offset in broker.log if offset < (broker.committed or 0))
            assert {self.message(number, offset) for offset in offsets} <= self.handed

    def teardown(self) -> None:
        for lease in self.leases:
            self.queue.release(lease, lease.begun())
        self.assign()
        for number in self.brokers:
            self.fetch(number)
        while (taken := self.queue.take(0)) is not None:
            self.note(taken)
        for number, broker in self.brokers.items():
            assert {self.message(number, offset) for offset in broker.log} <= self.handed


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
    return [message for message in found if message is not None]


def test_abandoned_message_is_handed_over_once_when_its_delay_is_over() -> None:
    queue = filled(3, backoff=Backoff(0.5, 10))
    assert taken(queue, 2) == ["m0", "m1"]
    begin = time.monotonic()
    assert queue.fail(0, 1, "m1", 0, True) == 1
    assert queue.fail(0, 1, "m1", 0, True) == 0  # it is abandoned already
    assert taken(queue, 3, timeout=0.01) == ["m2"]
    assert taken(queue, 1, timeout=5) == ["m1"]
    assert 0.5 <= time.monotonic() - begin < 5
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
    assert queue.resume_with_room() == []
    taken(queue)
    assert [p.number for p in queue.resume_with_room()] == [0]
    assert queue.resume_with_room() == []


def test_uncompleted_messages_pause_their_partition() -> None:
    queue = filled(10, max_pending=10)
    assert len(taken(queue, 10)) == 10
    assert [p.number for p in queue.wait_for_room(0)] == [0]
    for offset in range(5):
        queue.finish(0, offset)
    assert [p.number for p in queue.resume_with_room()] == [0]


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
    assert gone.first_unfinished == 3  # the fourth is still in progress
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
    assert lease.partition.first_unfinished == 0  # the application holds this one
    assert queue.finish(0, 0) is not None
    assert lease.partition.first_unfinished == 10


def test_partitions_take_turns() -> None:
    queue = LocalQueue(100, True)
    queue.assign({0: None, 1: None})
    for first in (0, 2):
        for number in (0, 1):
            queue.add(number, range(first, first + 2), [f"{number}/{first}"] * 2)
    peeked = queue.peek(100)
    assert peeked == ["0/0"] * 2 + ["0/2"] * 2 + ["1/0"] * 2 + ["1/2"] * 2
    found = taken(queue, 8)
    assert found == ["0/0"] * 2 + ["1/0"] * 2 + ["0/2"] * 2 + ["1/2"] * 2


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
    assert queue.partitions()[0].first_unfinished == 1
    assert queue.fail(0, 0, "m0", 1, True) == 1
    assert taken(queue) == []
    assert queue.partitions()[0].first_unfinished == 0


def again(queue: LocalQueue, committed: int) -> list[str]:
    """What comes after a rebalance that has left the partition here."""
    queue.revoke([0])
    queue.assign({0: committed})
    queue.add(0, range(committed, 6), [f"m{i}" for i in range(committed, 6)])
    return taken(queue, 6)


def test_message_completed_during_a_rebalance_does_not_come_again() -> None:
    queue = filled(6)
    queue.partitions()[0].committed = (0, "")  # at the revocation, at the latest
    assert len(taken(queue, 3)) == 3
    queue.revoke([0])
    assert queue.finish(0, 1) is not None
    queue.assign({0: 0})
    assert queue.finish(0, 2) is not None  # it is not fetched again yet
    queue.add(0, range(6), [f"m{i}" for i in range(6)])
    assert taken(queue, 6) == ["m0", "m3", "m4", "m5"]


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


def test_message_that_is_completed_while_it_waits_again_does_not_come() -> None:
    queue = filled(3)
    queue.partitions()[0].committed = (0, "")
    assert taken(queue, 2) == ["m0", "m1"]
    queue.revoke([0])
    queue.assign({0: 0})
    queue.add(0, range(4), [f"m{i}" for i in range(4)])
    assert queue.finish(0, 1) is not None
    assert queue.finish(0, 2) is None  # the application cannot have it
    assert queue.peek(9) == ["m0", "m2", "m3"]
    assert taken(queue, 4) == ["m0", "m2", "m3"]


def test_autocommit_counts_the_attempts_of_finished_messages() -> None:
    queue = filled(1, finish=True)
    for attempt in (1, 2, 3):
        assert taken(queue) == ["m0"]
        assert queue.partitions()[0].first_unfinished == 1
        assert queue.fail(0, 0, "m0", 0, True) == attempt
        assert queue.partitions()[0].first_unfinished == 0


def test_paused_partition_that_was_restarted_is_resumed() -> None:
    queue = filled(10, max_pending=10)
    assert len(queue.wait_for_room(0)) == 1
    queue.restart(0)
    assert queue.peek(1) == []
    assert [p.number for p in queue.resume_with_room()] == [0]


def test_completed_message_cannot_be_abandoned() -> None:
    queue = filled(2)
    taken(queue)
    assert queue.finish(0, 0) is not None
    assert queue.fail(0, 0, "m0", 0, True) == 0
    assert queue.partitions()[0].first_unfinished == 1


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
        while (offset := queue.take(0)) is not None:
            if offset >= 1000 or offset % 2:  # 500 are never completed
                queue.finish(0, offset)
        fetched += 100
        assert fetched < 20_000
    (partition,) = full
    assert 1000 <= partition.uncovered < 1200
    assert queue.resume_with_room() == []
    for offset in range(0, 1000, 2):
        queue.finish(0, offset)
    assert queue.resume_with_room() == [partition]


def test_listener_interrupted_before_it_began_ends() -> None:
    local = filled(1)
    ended: list[Listener] = []
    listener = Listener(local, None, None, lambda *_: None, ended.append)
    assert listener.wait(60)
    listener.end()
    assert ended == [listener]
    listener.end()
    assert ended == [listener]
