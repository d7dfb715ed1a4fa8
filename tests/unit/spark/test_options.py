"""The options of the source: defaults, forms, precedence, and errors that name them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from cykafka.spark.source.read_options import DRIVER_RECORDS, SHARED_RECORDS, ReadOptions

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a"}


def batch(**options: str) -> ReadOptions:
    return ReadOptions.of({**BASE, **lower(options)}, "batch")


def stream(**options: str) -> ReadOptions:
    return ReadOptions.of({**BASE, **lower(options)}, "stream")


def lower(options: dict[str, str]) -> dict[str, str]:
    """The options as Spark passes them; `_` stands for the dot of a name."""
    return {key.lower().replace("_", "."): value for key, value in options.items()}


def test_defaults_are_those_of_the_jvm_connector() -> None:
    made = batch()
    assert (made.start.kind, made.end.kind) == ("earliest", "latest")
    assert stream().start.kind == "latest"
    assert made.fail_on_data_loss
    assert made.poll_timeout_s == 120
    assert (made.retries, made.retry_interval_s) == (3, 0.01)
    assert made.max_delay_s == 900
    assert made.late_start == "error"
    assert made.group_id_prefix == "spark-kafka-source"
    assert (made.max_offsets, made.min_offsets) == (None, None)
    assert (made.min_partitions, made.max_records) == (None, None)
    # The connector never combines partitions.
    assert (made.max_shared, made.read_on) == (SHARED_RECORDS, "executors")
    assert (made.pushdown, made.commit_group) == (False, None)
    assert made.kafka["isolation.level"] == "read_uncommitted"


def test_options_are_parsed() -> None:
    made = stream(
        failOnDataLoss="FALSE",
        kafkaConsumer_pollTimeoutMs="1500",
        fetchOffset_numRetries="0",
        fetchOffset_retryIntervalMs="20",
        minOffsetsPerTrigger="5",
        maxOffsetsPerTrigger="7",
        minPartitions="2",
        maxRecordsPerSharedTask="8",
        readOn="Executors",
        maxRecordsPerPartition="9",
        groupIdPrefix="mine",
        includeHeaders="true",
        commitGroup="lag",
        startingOffsetsByTimestampStrategy="Latest",
        kafka_isolation_level="read_committed",
    )
    assert not made.fail_on_data_loss
    assert (made.poll_timeout_s, made.retries, made.retry_interval_s) == (1.5, 0, 0.02)
    assert (made.min_offsets, made.max_offsets) == (5, 7)
    assert (made.min_partitions, made.max_shared, made.max_records) == (2, 8, 9)
    assert made.read_on == "executors"
    assert (made.group_id_prefix, made.commit_group) == ("mine", "lag")
    assert made.late_start == "latest"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1", 0.001), ("500ms", 0.5), ("90s", 90), ("15m", 900), ("2 min", 120), ("1h", 3600)],
)
def test_times_have_units(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).max_delay_s == seconds


def test_topics_have_three_forms() -> None:
    assert batch(subscribe="a, b,a").topics.names == ("a", "b")
    base = {"kafka.bootstrap.servers": "localhost:9092"}
    assigned = ReadOptions.of({**base, "assign": '{"b":[1],"a":[0]}'}, "batch").topics
    assert assigned.partitions == (("a", 0), ("b", 1))
    assert ReadOptions.of({**base, "subscribepattern": "a.*"}, "batch").topics.pattern == "a.*"


def test_first_form_of_a_start_takes_precedence() -> None:
    by_time = '{"a":{"0":5}}'
    assert batch(startingOffsets=by_time).start.numbers == {("a", 0): 5}
    made = batch(startingOffsets="earliest", startingOffsetsByTimestamp=by_time).start
    assert (made.kind, made.option) == ("timestamps", "startingOffsetsByTimestamp")
    made = batch(startingOffsetsByTimestamp=by_time, startingTimestamp="17").start
    assert (made.kind, made.option, made.timestamp) == ("timestamp", "startingTimestamp", 17)
    made = batch(endingOffsets="latest", endingOffsetsByTimestamp=by_time, endingTimestamp="3").end
    assert (made.kind, made.timestamp) == ("timestamp", 3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"failOnDataLoss": "yes"}, "option failOnDataLoss: expected true or false, got 'yes'"),
        ({"minPartitions": "0"}, "option minPartitions: expected a whole number, 1 or more"),
        ({"minPartitions": "2.5"}, "option minPartitions"),
        ({"maxRecordsPerPartition": "-1"}, "option maxRecordsPerPartition"),
        ({"maxRecordsPerSharedTask": "0"}, "option maxRecordsPerSharedTask: expected"),
        ({"kafkaConsumer_pollTimeoutMs": "0"}, "option kafkaConsumer.pollTimeoutMs"),
        ({"fetchOffset_numRetries": "-1"}, "option fetchOffset.numRetries"),
        ({"startingTimestamp": "now"}, "option startingTimestamp"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "option startingOffsetsByTimestamp"),
        ({"startingOffsets": "newest"}, "option startingOffsets: expected earliest, latest or"),
        ({"startingOffsets": '{"a":'}, "option startingOffsets: expected JSON"),
        ({"subscribe": " , "}, "option subscribe"),
        ({"assign": "a"}, "exactly one of the options"),
        ({"groupIdPrefix": ""}, "option groupIdPrefix"),
        ({"includeHeaders": "yes"}, "option includeHeaders: expected true or false"),
        ({"readOn": "driver"}, "option readOn is for streams only"),
        ({"commitGroup": "g"}, "option commitGroup is for streams only"),
        ({"failOnDataLos": "true"}, 'did you mean "failOnDataLoss"?'),
        ({"maxOffsetPerTrigger": "1"}, 'did you mean "maxOffsetsPerTrigger"?'),
        ({"startingTimestamps": "1"}, 'did you mean "startingTimestamp"?'),
    ],
)
def test_errors_name_the_option(options: dict[str, str], expected: str) -> None:
    with pytest.raises(ValueError, match="option") as caught:
        batch(**options)
    assert expected in str(caught.value)


def test_driver_has_a_limit() -> None:
    assert stream().max_offsets is None
    assert stream(readOn="driver").max_offsets == DRIVER_RECORDS
    assert stream(readOn="driver", maxOffsetsPerTrigger="7").max_offsets == 7


@pytest.mark.parametrize(
    "name", ["minPartitions", "maxRecordsPerPartition", "maxRecordsPerSharedTask"]
)
def test_driver_has_no_options_of_tasks(name: str) -> None:
    assert stream(readOn="executors", **{name: "9"}).read_on == "executors"
    with pytest.raises(ValueError, match=f"option {name} is for tasks.*; remove {name}, or"):
        stream(readOn="driver", **{name: "9"})


OTHERS = ("path", "checkpointLocation", "topic", "mergeSchema", "x.y", "maxFilesPerTrigger",
          "partition", "assigned")  # fmt: skip


@pytest.mark.parametrize("key", OTHERS)
def test_other_option_keys_are_ignored(key: str) -> None:
    assert batch(**{key: "value"}).topics.names == ("a",)


def test_brokers_are_required() -> None:
    with pytest.raises(ValueError, match=r"kafka\.bootstrap\.servers"):
        ReadOptions.of({"subscribe": "a"}, "batch")


def test_invalid_pattern_is_refused() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "subscribepattern": "a("}
    with pytest.raises(ValueError, match="option subscribePattern: not a regular expression"):
        ReadOptions.of(options, "batch")


def test_secrets_survive_pickling_and_are_not_printed() -> None:
    made: Any = batch(kafka_sasl_password="do-not-tell", kafka_sasl_mechanism="PLAIN")

    assert "do-not-tell" not in repr(made)
    assert pickle.loads(pickle.dumps(made)).kafka["sasl.password"] == "do-not-tell"
