"""Progress of one partition: completion in any order skips no message."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from repeated import examples

from pip_services4_kafka.queues._progress import FINISHED, HANDED, RETRY, Progress, Run


class Model(RuleBasedStateMachine):
    """Compare with a set of unfinished offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.seen: list[int] = []
        self.open: set[int] = set()
        self.handed: set[int] = set()
        self.runs: list[Run] = []

    def at(self, offset: int) -> tuple[Run, int]:
        found = self.progress.find(offset)
        assert found is not None
        return found

    @rule(gap=st.integers(0, 3), steps=st.lists(st.integers(1, 3), min_size=1, max_size=8))
    def fetch(self, gap: int, steps: list[int]) -> None:
        offset = (self.progress.next or 0) + gap
        offsets = [offset]
        for step in steps:
            offset += step
            offsets.append(offset)
        run = self.progress.add(offsets, [f"m{o}" for o in offsets])
        assert run is not None
        self.runs.append(run)
        self.seen += offsets
        self.open |= set(offsets)

    @precondition(lambda self: self.seen)
    @rule(back=st.integers(0, 5))
    def fetch_again(self, back: int) -> None:
        first = max(0, self.seen[-1] - back)
        known = [o for o in self.seen if o >= first]
        assert not known or self.progress.add(known, [None] * len(known)) is None

    @precondition(lambda self: any(r.next < len(r) for r in self.runs))
    @rule(count=st.integers(1, 9), back=st.integers(0, 9))
    def hand_over(self, count: int, back: int) -> None:
        run = next(r for r in self.runs if r.next < len(r))
        start = run.next
        envelopes = run.hand_over(count)
        assert envelopes == [f"m{o}" for o in run.offsets[start : run.next]]
        rest = envelopes[len(envelopes) - back :] if 0 < back <= len(envelopes) else []
        if rest:
            assert run.take_back(run.next - back, rest)
        self.handed |= set(run.offsets[start : run.next])

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def finish_range(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.runs))
        start = data.draw(st.integers(0, len(run)))
        stop = data.draw(st.integers(start, len(run)))
        handed = {run.offsets[i] for i in range(start, stop) if run.state[i] == HANDED}
        assert self.progress.finish_handed(run, start, stop) == len(handed)
        self.open -= handed

    @precondition(lambda self: self.handed & self.open)
    @rule(data=st.data())
    def finish_one(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.handed & self.open)))
        run, index = self.at(offset)
        assert self.progress.finish(run, index)
        assert not self.progress.finish(run, index)
        self.open.discard(offset)

    @precondition(lambda self: self.handed)
    @rule(data=st.data(), reopen=st.booleans())
    def give_back(self, data: st.DataObject, reopen: bool) -> None:
        offset = data.draw(st.sampled_from(sorted(self.handed)))
        found = self.progress.find(offset)
        state = FINISHED if found is None else found[0].state[found[1]]
        result = self.progress.give_back(offset, reopen)
        if state == RETRY or (state == FINISHED and not reopen):
            assert result is None
            return
        assert result is not None
        assert result[0].offsets[result[1]] == offset
        assert result[0].state[result[1]] == RETRY
        self.open.add(offset)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def hand_over_again(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.open)))
        run, index = self.at(offset)
        if run.state[index] == RETRY:
            run.state[index] = HANDED

    @precondition(lambda self: self.seen)
    @rule(offset=st.integers(0, 200))
    def give_back_what_never_was(self, offset: int) -> None:
        if offset not in self.seen and self.progress.find(offset) is None:
            run = self.progress.give_back(offset, False)
            assert run is None

    @invariant()
    def position_is_the_first_unfinished_offset(self) -> None:
        expected = min(self.open) if self.open else self.progress.next
        assert self.progress.position == expected

    @invariant()
    def pending_are_the_unfinished(self) -> None:
        assert self.progress.pending == len(self.open)
        assert {o for o, _ in self.progress.unfinished()} == self.open


Model.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestProgress = Model.TestCase


def test_unseen_partition_has_no_progress() -> None:
    progress = Progress()
    assert progress.position is None
    assert progress.find(3) is None
    assert progress.give_back(3, True) is None


def test_attempts_are_counted_until_the_message_is_completed() -> None:
    progress = Progress()
    run = progress.add(range(5), [None] * 5)
    assert run is not None
    assert [progress.count_attempt(2), progress.count_attempt(2)] == [1, 2]
    progress.finish(run, 2)
    assert progress.count_attempt(2) == 1


def test_attempts_of_old_completed_messages_are_forgotten() -> None:
    progress = Progress(max_pending=5)
    for offset in range(20_000):
        progress.count_attempt(offset)
    assert len(progress.attempts) == 10_005
    assert progress.count_attempt(19_999) == 2


def test_attempts_of_all_uncompleted_messages_are_kept() -> None:
    progress = Progress(max_pending=30_000)
    for _ in range(2):
        for offset in range(30_000):
            progress.count_attempt(offset)
    assert progress.count_attempt(0) == 3


def test_run_releases_delivered_messages() -> None:
    run = Run(range(3), ["a", "b", "c"])
    assert run.hand_over(2) == ["a", "b"]
    assert run.envelopes == [None, None, "c"]
    assert run.take_back(1, ["b"])
    assert run.envelopes == [None, "b", "c"]
    assert run.hand_over(5) == ["b", "c"]
    assert not run.take_back(1, ["b"])  # the last one has been delivered to another caller
