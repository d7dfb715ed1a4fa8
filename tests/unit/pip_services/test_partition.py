"""A partition of the local queue: messages that finish in any order, and their position."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from repeated import examples

from pip_services4_kafka.queues._partition import PartitionState


def finish_one(partition: PartitionState, offset: int) -> bool:
    if not partition.can_finish(offset):
        return False
    partition.finish(offset, offset + 1)
    partition.forget(offset)
    return True


class Model(RuleBasedStateMachine):
    """Compare with a set of unfinished offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = PartitionState(0)
        self.seen: list[int] = []
        self.open: set[int] = set()
        self.handed: set[int] = set()

    @rule(gap=st.integers(0, 3), steps=st.lists(st.integers(1, 3), min_size=1, max_size=8))
    def fetch(self, gap: int, steps: list[int]) -> None:
        offset = (self.seen[-1] + 1 if self.seen else 0) + gap
        offsets = [offset]
        for step in steps:
            offset += step
            offsets.append(offset)
        if offsets[-1] - offsets[0] == len(offsets) - 1:
            assert self.partition.add(range(offsets[0], offsets[-1] + 1), offsets[:])
        else:
            assert self.partition.add(offsets, offsets[:])
        self.seen += offsets
        self.open |= set(offsets)

    @precondition(lambda self: self.seen)
    @rule(back=st.integers(0, 5))
    def fetch_again(self, back: int) -> None:
        known = self.seen[-1 - back :]
        assert not self.partition.add(known, known[:])

    @precondition(lambda self: self.partition.waiting)
    @rule(count=st.integers(1, 9), back=st.integers(0, 9))
    def hand_over(self, count: int, back: int) -> None:
        offsets, envelopes = self.partition.take(count)
        assert list(offsets) == envelopes
        assert set(offsets) <= self.open
        kept = max(0, len(offsets) - back)
        if kept < len(offsets):
            self.partition.take_back(offsets[kept:], envelopes[kept:])
        self.handed |= set(offsets[:kept])

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def finish_range(self, data: st.DataObject) -> None:
        last = max(self.handed)
        start = data.draw(st.integers(0, last))
        stop = data.draw(st.integers(start, last + 1))
        self.partition.finish_handled(start, stop)
        self.open -= set(range(start, stop)) - self.partition.retries.keys()

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def finish_one(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.handed)))
        assert finish_one(self.partition, offset) == (offset in self.open)
        assert not finish_one(self.partition, offset)
        self.open.discard(offset)

    @precondition(lambda self: self.handed)
    @rule(data=st.data(), reopen=st.booleans())
    def fail(self, data: st.DataObject, reopen: bool) -> None:
        offset = data.draw(st.sampled_from(sorted(self.handed)))
        possible = offset not in self.partition.retries and (reopen or offset in self.open)
        assert self.partition.can_retry(offset, reopen) == possible
        if possible:
            self.partition.retry(offset, f"again {offset}", 0)
            self.open.add(offset)

    @rule()
    def hand_over_again(self) -> None:
        retried = self.partition.pop_due(1)
        if retried is not None:
            offset, envelope = retried
            assert envelope == f"again {offset}"
            assert offset in self.open
            assert offset not in self.partition.retries

    @rule(offset=st.integers(0, 200))
    def messages_that_nobody_holds_cannot_fail(self, offset: int) -> None:
        left = {offset for offsets in self.partition.undelivered() for offset in offsets}
        if offset in left or offset >= (self.partition.position or 0):
            assert not self.partition.can_retry(offset, True)
        if offset >= (self.partition.position or 0):
            assert not finish_one(self.partition, offset)

    @precondition(lambda self: self.partition.waiting)
    @rule(data=st.data())
    def finish_one_that_waits(self, data: st.DataObject) -> None:
        """The application cannot have it."""
        left = sorted({offset for offsets in self.partition.undelivered() for offset in offsets})
        offset = data.draw(st.sampled_from(left))
        assert not finish_one(self.partition, offset)

    @precondition(lambda self: self.seen)
    @rule(batch=st.integers(1, 9))
    def change_owner(self, batch: int) -> None:
        self.partition = owner = PartitionState(
            0, self.partition.first_unfinished, self.partition.ranges()
        )
        log = [offset for offset in self.seen if offset >= (owner.first_unfinished or 0)]
        for start in range(0, len(log), batch):
            owner.add(log[start : start + batch], log[start : start + batch])
            self.ranges_are_sorted_and_apart()
        self.handed = {offset for offset in self.seen if offset < (owner.first_unfinished or 0)}

    @invariant()
    def first_unfinished_offset_is_the_lowest(self) -> None:
        assert self.partition.first_unfinished == (
            min(self.open) if self.open else self.partition.position
        )

    @invariant()
    def pending_are_the_unfinished(self) -> None:
        assert self.partition.pending == len(self.open)
        assert {o for o in self.seen if not self.partition.is_finished(o)} == self.open

    @invariant()
    def ranges_are_sorted_and_apart(self) -> None:
        edges = [edge for span in self.partition.ranges() for edge in span]
        assert edges == sorted(edges)
        edges = [edge for span in self.partition.finished for edge in span]
        assert edges == sorted(set(edges))
        assert not edges or self.partition.first_unfinished < edges[0]

    @invariant()
    def the_next_owner_gets_exactly_the_unfinished(self) -> None:
        if not self.seen:
            return
        position, waiting = self.partition.first_unfinished, []
        owner = PartitionState(0, position, self.partition.ranges())
        log = [offset for offset in self.seen if offset >= position]
        for start in range(0, len(log), 3):
            owner.add(log[start : start + 3], log[start : start + 3])
        while owner.waiting:
            waiting += owner.take(100)[1]
        assert set(waiting) == self.open
        assert owner.first_unfinished == position
        assert owner.pending == len(self.open)


Model.TestCase.settings = settings(
    max_examples=examples(300), stateful_step_count=40, deadline=None
)
TestPartition = Model.TestCase


def test_partition_without_messages_has_no_progress() -> None:
    partition = PartitionState(0)
    assert partition.first_unfinished is None
    assert partition.pending == 0
    assert not partition.can_retry(3, True)
    assert not finish_one(partition, 3)


def test_gap_before_the_first_message_counts_as_finished() -> None:
    partition = PartitionState(0, 100)
    assert partition.add(range(500, 510), [None] * 10)
    assert partition.first_unfinished == 500
    assert partition.pending == 10


def test_attempts_are_counted_until_the_message_is_completed() -> None:
    partition = PartitionState(0)
    partition.add(range(5), [None] * 5)
    partition.take(5)
    assert [partition.count_attempt(2), partition.count_attempt(2)] == [1, 2]
    finish_one(partition, 2)
    assert partition.count_attempt(2) == 1


def test_attempts_of_old_completed_messages_are_forgotten() -> None:
    partition = PartitionState(0)
    for offset in range(20_000):
        partition.count_attempt(offset)
    assert len(partition.attempts) == 10_000
    assert partition.count_attempt(19_999) == 2


def test_attempts_of_all_uncompleted_messages_are_kept() -> None:
    partition = PartitionState(0)
    partition.add(range(30_000), [None] * 30_000)
    for _ in range(2):
        for offset in range(30_000):
            partition.count_attempt(offset)
    assert partition.count_attempt(0) == 3


def test_partition_keeps_no_message_that_was_handed_over() -> None:
    partition = PartitionState(0)
    partition.add(range(3), ["a", "b", "c"])
    (run,) = partition.waiting
    assert partition.take(2) == (range(2), ["a", "b"])
    assert run.envelopes == [None, None, "c"]


def test_retries_and_new_messages_take_turns() -> None:
    partition = PartitionState(0)
    partition.add(range(4), list("abcd"))
    partition.take(2)
    for offset, envelope in ((0, "a"), (1, "b")):
        partition.retry(offset, envelope, 0)
    expected, order = [], []
    while partition.waiting or partition.retries:
        expected.append(next(partition.upcoming(1)))
        again = partition.pop_due(1)
        order.append(again[1] if again is not None else partition.take(1)[1][0])
    assert order == expected == ["a", "c", "b", "d"]


def earlier_partition(committed: int | None) -> PartitionState:
    earlier = PartitionState(0, committed)
    earlier.add(range(6), list("abcdef"))
    earlier.take(6)
    earlier.count_attempt(0)
    earlier.end()
    return earlier


def test_message_completed_after_a_rebalance_does_not_come_again() -> None:
    partition = PartitionState(0, 0)
    partition.continue_from(earlier_partition(0))
    assert [partition.skip(offset) for offset in (3, 1, 3, 2, 6)] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert partition.ranges() == [(1, 4)]
    partition.add(range(8), list("abcdefgh"))
    assert partition.can_finish(4)  # it waits, and the application has it
    partition.finish(4, 5)
    assert not partition.can_finish(7)
    assert partition.take(9)[1] == ["a", "f", "g", "h"]
    assert partition.count_attempt(0) == 2


@pytest.mark.parametrize("committed", [None, 2])
def test_commit_that_has_changed_ends_what_was_known(committed: int | None) -> None:
    """Without a commit, the topic may have been deleted and created again."""
    partition = PartitionState(0, committed)
    partition.continue_from(earlier_partition(None if committed is None else 0))
    assert not partition.skip(3)
    partition.add(range(8), list("abcdefgh"))
    assert not partition.can_finish(3)
    assert partition.count_attempt(0) == 1


def test_finished_messages_of_two_owners_are_united() -> None:
    earlier = earlier_partition(0)
    earlier.finish(1, 3)
    partition = PartitionState(0, 0, [(2, 5)])
    partition.continue_from(earlier)
    assert partition.ranges() == [(1, 5)]
