"""What earlier owners have finished counts only if the log is not shorter than it was."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from pip_services4_observability.count import CompositeCounters

from cykafka import KafkaError, TopicPartition
from pip_services4_kafka._log import Log
from pip_services4_kafka.queues import _receiver
from pip_services4_kafka.queues._commits import encode_ranges
from pip_services4_kafka.queues._measures import Measures
from pip_services4_kafka.queues._receiver import Receiver, ReceiverSettings

pytestmark = pytest.mark.ours

METADATA = encode_ranges(2, [(3, 8)], 100)[0]


class Place(NamedTuple):
    partition: int
    error: KafkaError | None


class Session:
    """The group has committed offset 2 of a partition, and finished 3 to 7 beyond it."""

    topic = "t"
    subscription = SimpleNamespace(options={})

    def __init__(self, *ends: int | None) -> None:
        self.ends = list(ends)  # one per request; None: the broker does not know it yet
        self.committed: list[tuple[int, str | None]] = []

    def request(self, doing: str, call: Any) -> Any:
        if doing == "reading the committed offsets":
            return [TopicPartition("t", 0, 2, metadata=METADATA)]
        end = self.ends.pop(0)
        error = KafkaError(KafkaError.LEADER_NOT_AVAILABLE) if end is None else None
        return {Place(0, error): SimpleNamespace(high=end)}

    def commit(self, positions: list[TopicPartition]) -> None:
        self.committed += [(place.offset, place.metadata) for place in positions]


def assigned(session: Any) -> Receiver:
    letters: Any = None
    measures = Measures(lambda: "q", CompositeCounters(), Log())
    receiver = Receiver(ReceiverSettings(), {}, lambda _: [], None, letters, measures)
    receiver.started(session)
    receiver.assigned([0])
    return receiver


def test_broker_that_does_not_know_the_end_yet_is_requested_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = Session(None, 0, 8)
    (partition,) = assigned(session).local.partitions()
    assert partition.ranges() == [(3, 8)]
    assert (session.ends, session.committed, caplog.records) == ([], [], [])


def test_finished_ranges_of_a_shorter_log_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_receiver, "_KNOWN_S", 0)
    session = Session(7)
    (partition,) = assigned(session).local.partitions()
    assert partition.ranges() == []
    assert [(offset, metadata or "") for offset, metadata in session.committed] == [(2, "")]
    assert "partitions [0] are shorter than before" in caplog.text
