"""The accepted and refused options and columns of a writer."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the group spark is not installed")

from pyspark.sql import types as t

from cykafka.spark.sink.write_options import WriteOptions, write_options

BINARY, STRING, INT, LONG, TIME = (
    t.BinaryType(),
    t.StringType(),
    t.IntegerType(),
    t.LongType(),
    t.TimestampType(),
)


def headers(key: t.DataType = STRING, value: t.DataType = BINARY, *names: str) -> t.ArrayType:
    first, second = names or ("key", "value")
    return t.ArrayType(t.StructType([t.StructField(first, key), t.StructField(second, value)]))


def schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


VALUE = schema(value=STRING)
ALL = schema(
    key=BINARY, value=STRING, topic=STRING, partition=INT, headers=headers(), timestamp=TIME
)


def made(columns: t.StructType = VALUE, stream: bool = False, **options: Any) -> WriteOptions:
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "topic": "t",
        **{key.replace("__", "."): value for key, value in options.items()},
    }
    given = {key: value for key, value in given.items() if value is not None}
    return write_options(given, columns, stream)


def refusal(columns: t.StructType = VALUE, stream: bool = False, **options: Any) -> str:
    with pytest.raises(ValueError, match=r".") as info:
        made(columns, stream, **options)
    return str(info.value)


# -- columns


def test_only_the_value_is_required() -> None:
    options = made()
    assert options.topic == "t"
    assert (options.key, options.partition, options.headers, options.timestamp) == (None,) * 4
    assert options.transaction is None


def test_existing_columns_are_written() -> None:
    options = made(ALL, topic=None)
    assert options.topic is None
    assert (options.key, options.partition, options.headers) == ("key", "partition", "headers")
    assert options.timestamp is None  # like the JVM connector


@pytest.mark.parametrize("kind", [TIME, LONG])
def test_timestamps_are_written_if_requested(kind: t.DataType) -> None:
    columns = schema(value=STRING, timestamp=kind)
    assert made(columns).timestamp is None
    assert made(columns, includeTimestamp="true").timestamp == "timestamp"
    assert "the column timestamp is missing" in refusal(includeTimestamp="true")


@pytest.mark.parametrize(("text", "found"), [("true", "headers"), ("FALSE", None)])
def test_headers_are_omitted_if_requested(text: str, found: str | None) -> None:
    assert made(ALL, includeheaders=text).headers == found


def test_columns_that_only_brokers_set_are_ignored() -> None:
    options = made(schema(value=STRING, offset=LONG, timestampType=INT))
    assert (options.key, options.partition, options.timestamp) == (None, None, None)


def test_other_columns_are_ignored() -> None:
    options = made(schema(value=STRING, customer=STRING, amount=t.DoubleType()))
    assert (options.key, options.partition, options.headers) == (None, None, None)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (schema(), "the column value is missing; the columns are: none"),
        (schema(key=STRING, topic=STRING), "missing; the columns are: key, topic"),
        (schema(Value=STRING), 'the column "Value" cannot be written'),
        (schema(Value=STRING), 'did you mean "value"?'),
        (schema(value=STRING, header=STRING), 'did you mean "headers"?'),
        (schema(value=STRING, topics=STRING), "The sink writes key, value, topic,"),
        (schema(value=INT), "the column value is of type int; expected string or binary"),
        (schema(value=STRING, key=LONG), "the column key is of type bigint"),
        (schema(value=STRING, topic=BINARY), "column topic is of type binary; expected string"),
        (schema(value=STRING, partition=LONG), "partition is of type bigint; expected int"),
        (schema(value=STRING, timestamp=STRING), "expected timestamp, or bigint"),
        (schema(value=STRING, headers=STRING), "expected array<struct<key:string,value:binary>>"),
        (schema(value=STRING, headers=headers(BINARY)), "the column headers is of type array<"),
        (schema(value=STRING, headers=headers(STRING, INT)), "the column headers"),
        (schema(value=STRING, headers=headers(STRING, BINARY, "name", "value")), "headers"),
        (schema(value=STRING, headers=t.ArrayType(STRING)), "the column headers"),
    ],
)  # fmt: skip
def test_other_columns_are_refused(columns: t.StructType, words: str) -> None:
    assert words in refusal(columns)


def test_columns_with_the_same_name_are_refused() -> None:
    columns = t.StructType([t.StructField("value", STRING), t.StructField("value", BINARY)])
    assert 'several columns "value"' in refusal(columns)


def test_header_values_may_be_text() -> None:
    assert made(schema(value=STRING, headers=headers(STRING, STRING))).headers == "headers"


# -- topics


def test_topic_is_set_by_the_option_or_the_column() -> None:
    assert "no topic: set the option topic, or add a column" in refusal(topic=None)
    assert made(schema(value=STRING, topic=STRING), topic=None).topic is None
    assert made(schema(value=STRING, topic=STRING)).topic == "t"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ä", ".", "..", "x" * 250])
def test_invalid_topic_name_is_refused(name: str) -> None:
    assert "is not a valid topic name" in refusal(topic=name)


# -- options


@pytest.mark.parametrize(
    ("key", "meant"),
    [("topics", "topic"), ("include_headers", "includeHeaders"),
     ("transactional.id.prefix", "transactionalIdPrefix"),
     ("includetimestamps", "includeTimestamp")],
)  # fmt: skip
def test_misspelled_option_error_suggests_the_right_one(key: str, meant: str) -> None:
    assert f'option {key} is unknown; did you mean "{meant}"?' in refusal(**{key: "x"})


def test_options_of_spark_and_of_the_source_are_ignored() -> None:
    options = made(
        path="x", checkpointlocation="y", subscribe="t", startingOffsets="earliest", queryname="q"
    )
    assert options == made()


def test_a_flag_is_true_or_false() -> None:
    assert 'option includeHeaders: expected true or false, got "1"' in refusal(includeHeaders="1")


def test_producer_settings_match_the_jvm_connector() -> None:
    config = made().config
    assert config["enable.idempotence"] == "true"
    assert config["partitioner"] == "murmur2_random"
    assert config["delivery.timeout.ms"] == "120000"
    assert made(kafka__delivery__timeout__ms="5").config["delivery.timeout.ms"] == "5"
    assert made(kafka__message__timeout__ms="5").config["delivery.timeout.ms"] == "5"


@pytest.mark.parametrize("text", ["abc", "-1", "0x100", "100.5", "1_000", ""])
def test_the_length_of_the_queue_is_a_number(text: str) -> None:
    error_text = refusal(kafka__queue__buffering__max__messages=text)
    assert "option kafka.queue.buffering.max.messages: expected a whole number" in error_text


def test_limits_of_the_queue_can_be_set() -> None:
    assert made().config["queue.buffering.max.messages"] == "100000"
    assert made(kafka__queue__buffering__max__messages=" 010 ").config[
        "queue.buffering.max.messages"
    ] == "10"  # fmt: skip
    assert made().config["queue.buffering.max.kbytes"] == "65536"
    assert (
        made(kafka__queue__buffering__max__kbytes="7").config["queue.buffering.max.kbytes"] == "7"
    )
    assert made(kafka__buffer__memory="9216").config["queue.buffering.max.kbytes"] == "9"


def test_options_of_the_client_are_checked() -> None:
    assert "kafka.bootstrap.servers" in refusal(kafka__bootstrap__servers=None)
    assert "kafka.linger.mss" in refusal(kafka__linger__mss="1")


# -- transactions


def test_transactions_are_for_streams_with_a_prefix() -> None:
    options = made(stream=True, transactional="true", transactionalIdPrefix="mine")
    assert options.transaction == "mine"
    assert options.config["transaction.timeout.ms"] == "300000"
    assert options.config["delivery.timeout.ms"] == "120000"

    assert "transactionalIdPrefix is missing" in refusal(stream=True, transactional="true")
    assert "transactionalIdPrefix is missing" in refusal(
        stream=True, transactional="true", transactionalIdPrefix=" "
    )
    assert "is for streams" in refusal(transactional="true", transactionalIdPrefix="mine")
    assert "without transactional=true" in refusal(stream=True, transactionalIdPrefix="mine")
    assert made(stream=True, transactional="false").transaction is None


@pytest.mark.parametrize(
    "options",
    [{"kafka__acks": "1"}, {"kafka__enable__idempotence": "false"}, {"kafka__retries": "0"}],
)
def test_transactions_require_an_idempotent_producer(options: dict[str, str]) -> None:
    text = refusal(stream=True, transactional="true", transactionalIdPrefix="mine", **options)
    assert "needs an idempotent producer" in text


def test_a_delivery_may_take_as_long_as_its_transaction() -> None:
    def config(**options: str) -> dict[str, str]:
        return made(stream=True, transactional="true", transactionalIdPrefix="x", **options).config

    assert config(kafka__transaction__timeout__ms="9000")["delivery.timeout.ms"] == "9000"
    asked = config(kafka__transaction__timeout__ms="9000", kafka__delivery__timeout__ms="4")
    assert asked["delivery.timeout.ms"] == "4"


# -- secrets


def test_options_are_pickled_and_do_not_print_secrets() -> None:
    options = made(kafka__sasl__password="hush", kafka__sasl__username="hush")
    assert "hush" not in repr(options)
    assert "topic='t'" in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


def test_transactions_need_xxhash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xxhash", None)  # as if it were not installed
    words = refusal(stream=True, transactional="true", transactionalIdPrefix="x")
    assert "needs the package xxhash on the driver and on every executor" in words
