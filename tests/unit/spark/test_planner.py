"""What the driver makes of brokers' answers, with a consumer that is made up."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest

from cykafka import OFFSET_END, KafkaError, KafkaException, TopicPartition, Watermarks
from cykafka.spark import consumers
from cykafka.spark import planner as module
from cykafka.spark.consumers import OpenConsumer, consumer_config
from cykafka.spark.loss import DataLossError
from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import ReadOptions
from cykafka.spark.planner import GroupMirror, Planner, tasks_of


class MadeUp:
    """Answers as the test has them; `troubles` of them fail first."""

    def __init__(self, partitions: dict[str, int], high: int = 10) -> None:
        self.partitions = partitions
        self.high = high
        self.troubles: list[Any] = []
        self.asked = 0
        self.errors: dict[str, int] = {}
        self.hidden: dict[str, int] = {}  # topics that so many answers do not know of

    def poll(self, timeout: float) -> None: ...

    def shown(self, name: str) -> bool:
        self.hidden[name] = self.hidden.get(name, 0) - 1
        return name in self.partitions and self.hidden[name] < 0

    def trouble(self) -> Any:
        self.asked += 1
        return self.troubles.pop(0) if self.troubles else None

    def list_topics(self, topic: str | None = None, timeout: float | None = None) -> Any:
        if self.trouble() is not None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        there = [each for each in self.partitions if topic in (None, each) and self.shown(each)]
        names = [topic] if topic is not None else there
        topics = {}
        for name in names:
            code = self.errors.get(name)
            if name not in there:
                code = KafkaError.UNKNOWN_TOPIC_OR_PART
            numbers = {} if code else dict.fromkeys(range(self.partitions[name]))
            topics[name] = SimpleNamespace(
                error=KafkaError(code) if code else None, partitions=numbers
            )
        return SimpleNamespace(topics=topics)

    def watermarks(self, asked: Any, timeout: float) -> Any:
        trouble = self.trouble()
        high = trouble if isinstance(trouble, int) else self.high
        answers = {}
        for each in asked:
            key = SimpleNamespace(topic=each.topic, partition=each.partition, error=None)
            if isinstance(trouble, KafkaError):
                key.error = trouble
            answers[Key(key)] = Watermarks(0, high)
        return answers

    def offsets_for_times(self, asked: Any, timeout: float) -> Any:
        return [
            SimpleNamespace(
                topic=each.topic,
                partition=each.partition,
                error=None,
                offset=each.offset if each.offset < self.high else OFFSET_END,
            )
            for each in asked
        ]


class Key(SimpleNamespace):
    """A partition with an error, as a key."""

    def __init__(self, given: Any) -> None:
        super().__init__(**vars(given))

    def __hash__(self) -> int:
        return hash((self.topic, self.partition))


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    # Not for all: py4j has a thread that sleeps, too.
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=slept.append))
    return slept


def planned(made_up: MadeUp, mode: Any = "batch", **options: str) -> Planner:
    given = {key.lower().replace("_", "."): value for key, value in options.items()}
    if not {"subscribe", "assign", "subscribepattern"} & given.keys():
        given["subscribe"] = "a"
    planner = Planner(ReadOptions.of({"kafka.bootstrap.servers": "h:1", **given}, mode))
    planner._open = OpenConsumer({}, make=lambda _: made_up)  # type: ignore[arg-type, return-value]
    return planner


def test_failed_metadata_requests_are_retried(no_sleep: list[float]) -> None:
    made_up = MadeUp({"a": 2})
    made_up.troubles = [True, True]
    planner = planned(made_up, fetchOffset_numRetries="2", fetchOffset_retryIntervalMs="30")
    assert planner.partitions() == [("a", 0), ("a", 1)]
    assert no_sleep == [0.03, 0.03]

    made_up.troubles = [True, True, True]
    with pytest.raises(KafkaException):
        planner.partitions()


def test_failed_end_offsets_are_retried_and_then_named(no_sleep: list[float]) -> None:
    made_up = MadeUp({"a": 1})
    leaderless = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    made_up.troubles = [leaderless] * 50
    planner = planned(made_up)
    assert planner.ends([("a", 0)]).latest == {("a", 0): 10}

    made_up.troubles = [leaderless] * 1000
    no_sleep.clear()
    with pytest.raises(RuntimeError, match=r"a \[0\].*Do they have leaders") as caught:
        planner.ends([("a", 0)])
    # They are waited for as brokers are, and then asked for as often as anything else.
    assert 60 <= sum(no_sleep) < 65
    assert not isinstance(caught.value, DataLossError)  # not even with failOnDataLoss=false
    with pytest.raises(RuntimeError):
        planned(made_up, failOnDataLoss="false").ends([("a", 0)])


def test_end_offsets_of_many_partitions_are_requested_in_parts() -> None:
    made_up = MadeUp({"a": 1200})
    many = [("a", number) for number in range(1200)]
    assert planned(made_up).ends(many).latest == dict.fromkeys(many, 10)
    assert made_up.asked == 3


def test_partitions_that_vanish_meanwhile_are_a_loss() -> None:
    made_up = MadeUp({"a": 1})
    gone = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    made_up.troubles = [gone] * 8
    with pytest.raises(DataLossError, match=r"a \[0\]"):
        planned(made_up).ends([("a", 0)])
    assert planned(made_up, failOnDataLoss="false").ends([("a", 0)]).latest == {}


def test_end_offset_before_a_known_one_is_requested_again() -> None:
    made_up = MadeUp({"a": 1}, high=10)
    made_up.troubles = [7]
    planner = planned(made_up, "stream")
    assert planner.ends([("a", 0)], {("a", 0): 9}).latest == {("a", 0): 10}
    assert made_up.asked == 2
    # If it stays it is given out: the topic was made anew.
    assert planner.ends([("a", 0)], {("a", 0): 11}).latest == {("a", 0): 10}


def test_missing_topic_is_looked_up_again_and_then_named() -> None:
    made_up = MadeUp({"b": 1})
    with pytest.raises(RuntimeError, match="option subscribe: topic a does not exist"):
        planned(made_up).partitions()
    assert made_up.asked == 4
    planner = planned(made_up, subscribe="a,b", failOnDataLoss="false")
    assert planner.partitions() == [("b", 0)]


def test_missing_assigned_partitions_are_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    planner = planned(MadeUp({"a": 2}), assign='{"a":[1,5]}')
    assert planner.partitions() == [("a", 1)]
    assert "option assign: there is no a [5]" in "\n".join(caplog.messages)


READS = {
    "subscribe": {"subscribe": "a,b"},
    "subscribePattern": {"subscribePattern": "[ab]"},
    "assign": {"assign": '{"a":[0],"b":[0]}'},
}


@pytest.mark.parametrize("lenient", ["true", "false"])
@pytest.mark.parametrize("options", READS.values(), ids=READS.keys())
def test_known_topic_missing_from_one_answer_is_not_a_loss(
    options: dict[str, str], lenient: str, no_sleep: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    made_up = MadeUp({"a": 1, "b": 1})
    made_up.hidden["b"] = 2
    planner = planned(made_up, "stream", failOnDataLoss=lenient, **options)

    assert planner.partitions([("a", 0), ("b", 0)]) == [("a", 0), ("b", 0)]
    assert no_sleep == [0.5, 0.5]  # a broker that has just started knows no more after 10 ms
    assert not caplog.messages


@pytest.mark.parametrize("options", READS.values(), ids=READS.keys())
def test_known_topic_that_stays_missing_is_a_loss(options: dict[str, str]) -> None:
    made_up = MadeUp({"a": 1})
    planner = planned(made_up, "stream", failOnDataLoss="false", **options)

    assert planner.partitions([("a", 0), ("b", 0)]) == [("a", 0)]
    assert made_up.asked == (4 if "subscribePattern" in options else 8)
    # What was not there before, or is not read any more, is not waited for.
    made_up.asked = 0
    assert planner.partitions([("a", 0), ("c", 0)]) == [("a", 0)]
    assert made_up.asked == (1 if "subscribePattern" in options else 2)


def test_known_partition_missing_from_one_answer_is_not_a_loss(no_sleep: list[float]) -> None:
    made_up = MadeUp({"a": 1})
    made_up.troubles = [KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)]
    planner = planned(made_up, "stream", failOnDataLoss="false")

    assert planner.ends([("a", 0)], {("a", 0): 9}).latest == {("a", 0): 10}
    assert no_sleep == [0.5]


def test_many_topics_are_looked_up_in_one_request() -> None:
    made_up = MadeUp({f"t{number}": 1 for number in range(20)})
    names = ",".join(made_up.partitions)
    assert len(planned(made_up, subscribe=names).partitions()) == 20
    assert made_up.asked == 1
    # What the list lacks is asked for by name.
    planner = planned(made_up, subscribe=f"{names},absent", failOnDataLoss="false")
    assert len(planner.partitions()) == 20
    assert made_up.asked == 3


class Silent(MadeUp):
    """Brokers that do not answer, and why; time goes by with the questions."""

    def __init__(self, complaint: KafkaError, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__({"a": 1})
        self.now = 0.0
        self.complaint = complaint
        self.opened: OpenConsumer | None = None
        monkeypatch.setattr(consumers, "time", SimpleNamespace(monotonic=lambda: self.now))

    def list_topics(self, topic: str | None = None, timeout: float | None = None) -> Any:
        self.asked += 1
        self.now += timeout or 0.0
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))

    def poll(self, timeout: float) -> None:
        assert self.opened is not None
        self.opened._complain(self.complaint)
        self.opened._complain(KafkaError(KafkaError._ALL_BROKERS_DOWN))


@pytest.mark.parametrize("code", [KafkaError._AUTHENTICATION, KafkaError._SSL])
def test_failed_login_raises_at_once(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = Silent(KafkaError(code, "no such user"), monkeypatch)
    planner = planned(made_up)
    made_up.opened = planner.brokers

    with pytest.raises(KafkaException, match="no such user") as caught:
        planner.partitions()
    assert caught.value.args[0].code() == code
    assert made_up.now < 5


def test_silent_brokers_time_out_after_a_minute_with_the_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made_up = Silent(KafkaError(KafkaError._TRANSPORT, "connection refused"), monkeypatch)
    planner = planned(made_up)
    made_up.opened = planner.brokers

    with pytest.raises(KafkaException, match=r"Failed to get metadata.*connection refused"):
        planner.partitions()
    assert made_up.now == pytest.approx(60, abs=1)
    assert made_up.asked <= 7


def test_connection_errors_count_until_brokers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = planned(MadeUp({"a": 1}))
    planner.brokers._complain(KafkaError(KafkaError._AUTHENTICATION))
    assert planner.brokers.hopeless() is not None
    planner.partitions()
    assert planner.brokers.hopeless() is None


def test_group_of_the_driver_has_the_prefix() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}
    for prefix in ("spark-kafka-source", "mine"):
        options = ReadOptions.of({**given, "groupidprefix": prefix}, "batch")
        groups = set()
        for _ in range(2):
            planner = Planner(options)
            groups.add(planner.brokers.consumer.configuration()["group.id"])
            planner.close()
        assert len(groups) == 2
        assert all(str(each).startswith(f"{prefix}-") for each in groups)


def test_losses_outside_the_filters_are_ignored() -> None:
    start = '{"a":{"0":0,"1":12}}'
    strict = planned(
        MadeUp({"a": 2}), startingOffsets=start, endingOffsets='{"a":{"0":99,"1":12}}'
    )

    def before_5(whole: PartitionRange) -> list[PartitionRange]:
        return [PartitionRange(whole.topic, whole.partition, whole.start, min(whole.end, 5))]

    def of_0(whole: PartitionRange) -> list[PartitionRange]:
        return before_5(whole) if whole.partition == 0 else []

    assert strict.batch_ranges(of_0) == [PartitionRange("a", 0, 0, 5)]
    with pytest.raises(DataLossError, match=r"a \[0\]: offsets 10 to 98 are not there"):
        strict.batch_ranges(lambda whole: [whole] if whole.partition == 0 else [])
    with pytest.raises(DataLossError, match=r"a \[1\]: the read would begin at 12"):
        strict.batch_ranges(lambda whole: [whole] if whole.partition == 1 else [])


def test_pattern_skips_internal_topics() -> None:
    planner = planned(MadeUp({"a": 1, "ab": 2, "__consumer_offsets": 50}), subscribePattern=".*")
    assert planner.partitions() == [("a", 0), ("ab", 0), ("ab", 1)]


def test_known_topic_without_metadata_is_not_a_loss() -> None:
    made_up = MadeUp({"a": 1, "b": 1})
    made_up.errors["b"] = KafkaError.LEADER_NOT_AVAILABLE
    planner = planned(made_up, "stream", subscribePattern=".*")
    assert planner.partitions() == [("a", 0)]  # a new one comes when it is ready
    with pytest.raises(KafkaException):
        planner.partitions([("a", 0), ("b", 0)])


def test_times_without_records_start_at_the_end_or_fail() -> None:
    made_up = MadeUp({"a": 1})
    with pytest.raises(ValueError, match=r"startingTimestamp: a \[0\] has no record"):
        planned(made_up, startingTimestamp="99").batch_ranges()
    late = planned(made_up, startingTimestamp="99", startingOffsetsByTimestampStrategy="latest")
    assert late.batch_ranges() == []
    ended = planned(made_up, startingTimestamp="3", endingTimestamp="99")
    assert ended.batch_ranges() == [PartitionRange("a", 0, 3, 10)]


def test_start_after_the_end_of_a_partition_is_a_loss() -> None:
    start = '{"a":{"0":11}}'
    with pytest.raises(DataLossError, match=r"a \[0\]: the read would begin at 11"):
        planned(MadeUp({"a": 1}), startingOffsets=start).batch_ranges()
    lenient = planned(MadeUp({"a": 1}), startingOffsets=start, failOnDataLoss="false")
    assert lenient.batch_ranges() == []
    assert planned(MadeUp({"a": 1}), startingOffsets='{"a":{"0":10}}').batch_ranges() == []


def test_tasks_follow_the_options() -> None:
    ranges = [PartitionRange("a", number, 0, 6_000) for number in range(4)]

    def sizes(**options: str) -> list[int]:
        read = planned(MadeUp({}), **options).options
        return [sum(each.size for each in task) for task in tasks_of(ranges, read)]

    assert sizes() == [6_000] * 4
    # A thousand records may be a thousand large ones.
    ranges = [PartitionRange("a", number, 0, 1_000) for number in range(8)]
    assert sizes() == [1_000] * 8
    ranges = [PartitionRange("a", number, 0, 6_000) for number in range(4)]
    assert sizes(maxRecordsPerPartition="2000") == [2_000] * 12
    assert sizes(minPartitions="8") == [3_000] * 8
    small = [PartitionRange("a", number, 0, 10) for number in range(40)]
    assert len(tasks_of(small, planned(MadeUp({})).options)) == 1
    assert len(tasks_of(small, planned(MadeUp({}), minPartitions="4").options)) == 4
    capped = planned(MadeUp({}), maxRecordsPerPartition="100").options
    assert len(tasks_of(small, capped)) == 4


def test_consumers_never_commit_and_never_reset_offsets() -> None:
    kafka = planned(MadeUp({})).options.kafka
    made = consumer_config(kafka, "mine")
    assert made["group.id"] == "mine"
    assert made["enable.auto.commit"] == "false"
    assert made["auto.offset.reset"] == "error"
    assert made["enable.partition.eof"] == "true"
    assert made["fetch.wait.max.ms"] == "10"

    given = planned(MadeUp({}), kafka_group_id="theirs", kafka_fetch_max_wait_ms="70")
    made = consumer_config(given.options.kafka, "mine")
    assert (made["group.id"], made["fetch.wait.max.ms"]) == ("theirs", "70")


def test_planners_and_mirrors_are_pickled_without_clients() -> None:
    planner = planned(MadeUp({"a": 1}))
    assert pickle.loads(pickle.dumps(planner))._open is None
    mirror = GroupMirror(planner.options.kafka, "lag")
    mirror._consumer = MadeUp({})  # type: ignore[assignment]
    again = pickle.loads(pickle.dumps(mirror))
    assert again._consumer is None
    assert again.config["group.id"] == "lag"


def test_mirror_commits_new_offsets_and_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    commits: list[list[tuple[str, int, int]]] = []

    class Committing(MadeUp):
        def poll(self, timeout: float) -> None: ...

        def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
            commits.append([(at.topic, at.partition, at.offset) for at in offsets])
            if self.trouble() is not None:
                raise KafkaException(KafkaError(KafkaError._STATE))

    made_up = Committing({})
    mirror = GroupMirror(planned(made_up).options.kafka, "lag")
    mirror._consumer = made_up  # type: ignore[assignment]
    mirror.commit({("a", 0): 1, ("a", 1): 1})
    mirror.commit({("a", 0): 1, ("a", 1): 2})
    mirror.commit({("a", 0): 1, ("a", 1): 2})
    assert commits == [[("a", 0, 1), ("a", 1, 1)], [("a", 1, 2)]]

    made_up.troubles = [True]
    mirror.commit({("a", 0): 5, ("a", 1): 2})
    assert "could not be written into group lag" in "\n".join(caplog.messages)
    mirror.commit({("a", 0): 5, ("a", 1): 2})
    assert commits[-1] == [("a", 0, 5), ("a", 1, 2)]


def test_next_commit_repeats_a_failed_mirror() -> None:
    commits: list[int] = []

    class Failing(MadeUp):
        failed: list[KafkaError]

        def poll(self, timeout: float) -> None:
            if self.failed:
                mirror._committed(self.failed.pop(), [])

        def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
            commits.append(len(offsets))

    made_up = Failing({})
    made_up.failed = []
    mirror = GroupMirror(planned(made_up).options.kafka, "lag")
    mirror._consumer = made_up  # type: ignore[assignment]
    mirror.commit({("a", 0): 1, ("a", 1): 1})
    made_up.failed = [KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)]
    mirror.commit({("a", 0): 1, ("a", 1): 2})

    assert commits == [2, 2]


def test_records_produced_after_the_end_request_are_after_the_ends() -> None:
    made_up = MadeUp({"a": 1}, high=20)
    made_up.troubles = [None, 10]  # topics; then the ends, as they were a moment before
    planner = planned(made_up, endingTimestamp="15", startingTimestamp="5")
    assert [(each.start, each.end) for each in planner.batch_ranges()] == [(5, 10)]
