"""Starts and ends of batches, the rows between, and refusals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

Load = Callable[..., DataFrame]


def offsets(topic: str, *starts: int) -> str:
    return json.dumps({topic: {str(number): at for number, at in enumerate(starts)}})


@pytest.fixture
def pair(cluster: Any, unique: Any, fill: Any) -> str:
    """A topic of two partitions with ten records each."""
    name = unique("pair")
    cluster.create_topic(name, 2)
    fill(name, 10, 0)
    fill(name, 10, 1)
    return name


def test_offsets_are_explicit_earliest_and_latest(batch: Load, pair: str, found: Any) -> None:
    frame = batch(
        subscribe=pair,
        startingOffsets=offsets(pair, 7, -2),
        endingOffsets=offsets(pair, -1, 2),
    )

    assert found(frame) == [(0, 7), (0, 8), (0, 9), (1, 0), (1, 1)]


def test_end_before_the_start_is_refused(batch: Load, pair: str) -> None:
    frame = batch(
        subscribe=pair, startingOffsets=offsets(pair, 7, 7), endingOffsets=offsets(pair, 3, 9)
    )

    with pytest.raises(PySparkException, match=rf"{pair} \[0\] would be read from 7 to 3"):
        frame.collect()


def test_assign_reads_only_its_partitions(batch: Load, pair: str, found: Any) -> None:
    assign = json.dumps({pair: [1]})
    assert found(batch(assign=assign)) == [(1, offset) for offset in range(10)]
    start = json.dumps({pair: {"1": 9}})
    assert found(batch(assign=assign, startingOffsets=start)) == [(1, 9)]


def test_pattern_matches_whole_names(batch: Load, cluster: Any, unique: Any, fill: Any) -> None:
    prefix = unique("pattern")
    for end in ("a", "b", "bb"):
        cluster.create_topic(f"{prefix}-{end}", 1)
        fill(f"{prefix}-{end}", 1)

    def topics(pattern: str) -> list[str]:
        rows = batch(subscribePattern=pattern).select("topic").collect()
        return sorted(row.topic.removeprefix(prefix) for row in rows)

    assert topics(f"{prefix}-b") == ["-b"]
    assert topics(f"{prefix}-b+") == ["-b", "-bb"]
    assert topics(f"{prefix}-.*") == ["-a", "-b", "-bb"]
    assert topics("no-such-topic.*") == []


def test_several_topics_are_read(batch: Load, cluster: Any, unique: Any, fill: Any) -> None:
    names = [unique("several"), unique("several")]
    for name in names:
        cluster.create_topic(name, 1)
        fill(name, 3)

    rows = batch(subscribe=" , ".join(names)).collect()

    assert sorted((row.topic, row.offset) for row in rows) == sorted(
        (name, offset) for name in names for offset in range(3)
    )


@pytest.fixture
def timed(cluster: Any, unique: Any, producer: Any) -> tuple[str, int]:
    """A topic of two partitions with records a second apart, and the first timestamp, ms."""
    name = unique("timed")
    cluster.create_topic(name, 2)
    first = int(time.time()) * 1000 - 60_000
    for number in range(10):
        for partition in range(2):
            producer.produce(name, b"x", partition=partition, timestamp=first + 1000 * number)
    producer.flush()
    return name, first


def test_times_are_inclusive_starts_and_exclusive_ends(
    batch: Load, timed: tuple[str, int], found: Any
) -> None:
    name, first = timed
    frame = batch(
        subscribe=name, startingTimestamp=str(first + 6500), endingTimestamp=str(first + 8000)
    )
    assert found(frame) == [(0, 7), (1, 7)]

    frame = batch(
        subscribe=name,
        startingOffsetsByTimestamp=offsets(name, first + 9000, first + 8000),
        endingOffsetsByTimestamp=offsets(name, first + 99_000, first + 9000),
    )
    assert found(frame) == [(0, 9), (1, 8)]


def test_time_overrides_times_and_times_override_offsets(
    batch: Load, timed: tuple[str, int], found: Any
) -> None:
    name, first = timed
    by_time = offsets(name, first + 8000, first + 8000)
    behind = offsets(name, first + 9000, first + 9000)

    frame = batch(
        subscribe=name,
        startingOffsets=offsets(name, 0, 0),
        startingOffsetsByTimestamp=by_time,
        endingOffsets="latest",
        endingOffsetsByTimestamp=behind,
    )
    assert found(frame) == [(0, 8), (1, 8)]

    frame = batch(
        subscribe=name,
        startingOffsetsByTimestamp=by_time,
        startingTimestamp=str(first + 9000),
        endingOffsetsByTimestamp=behind,
        endingTimestamp=str(first + 99_000),
    )
    assert found(frame) == [(0, 9), (1, 9)]


def test_a_start_later_than_all_records_is_an_error_or_the_end(
    batch: Load, timed: tuple[str, int], found: Any
) -> None:
    name, first = timed
    late = {"subscribe": name, "startingTimestamp": str(first + 99_000)}

    with pytest.raises(PySparkException, match="startingOffsetsByTimestampStrategy") as caught:
        batch(**late).collect()
    assert f"option startingTimestamp: {name} [0] has no record at or after" in str(caught.value)

    assert found(batch(startingOffsetsByTimestampStrategy="latest", **late)) == []
    with pytest.raises(PySparkException, match="expected error or latest"):
        batch(startingOffsetsByTimestampStrategy="earliest", **late).collect()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "expected exactly one of the options assign, subscribe, subscribePattern, got none"),
        (
            {"subscribe": "a", "subscribePattern": "b"},
            "got subscribe and subscribePattern",
        ),
        ({"subscribe": "a", "startingOffsets": "latest"}, "a batch cannot start at the latest"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "a batch cannot end at the earliest"),
        (
            {"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'},
            "a batch cannot start at the latest offset of a [0]",
        ),
        (
            {"subscribe": "a", "endingOffsets": '{"a":{"0":-2}}'},
            "a batch cannot end at the earliest offset of a [0]",
        ),
        ({"subscribe": "a", "startingOffset": "earliest"}, 'did you mean "startingOffsets"?'),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset"),
        ({"subscribe": "a", "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit"),
        ({"subscribe": "a", "kafka.value.deserializer": "x"}, "kafka.value.deserializer"),
        ({"subscribe": "a", "kafka.interceptor.classes": "x"}, "kafka.interceptor.classes"),
        ({"subscribe": "a", "commitGroup": "g"}, "is for streams only"),
    ],
)
def test_invalid_options_are_refused(batch: Load, options: dict[str, str], expected: str) -> None:
    with pytest.raises(PySparkException) as caught:
        batch(**options).collect()

    assert expected in str(caught.value)


def test_offsets_must_name_all_partitions_and_no_others(batch: Load, pair: str) -> None:
    with pytest.raises(PySparkException, match=r"missing: pair-.* \[1\]"):
        batch(subscribe=pair, startingOffsets=json.dumps({pair: {"0": 1}})).collect()
    with pytest.raises(PySparkException, match=r"not read: pair-.* \[2\]"):
        batch(subscribe=pair, endingOffsets=offsets(pair, 1, 1, 1)).collect()


def test_missing_topic_is_named(batch: Load, unique: Any) -> None:
    name = unique("missing")
    with pytest.raises(PySparkException, match=f"topic {name} does not exist"):
        batch(subscribe=name).collect()
    assert batch(subscribe=name, failOnDataLoss="false").count() == 0


def test_aged_out_start_is_a_loss(batch: Load, pair: str, found: Any, delete_before: Any) -> None:
    delete_before(pair, 0, 4)
    assert found(batch(subscribe=pair))[0] == (0, 4)  # earliest is the first existing offset

    start = {"subscribe": pair, "startingOffsets": offsets(pair, 1, 9)}
    with pytest.raises(PySparkException, match="offsets 1 to 3 are gone") as caught:
        batch(**start).collect()
    assert f"{pair} [0]" in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)

    frame = batch(failOnDataLoss="false", **start)
    assert found(frame) == [*((0, offset) for offset in range(4, 10)), (1, 9)]


def test_missing_end_offset_is_a_loss(batch: Load, pair: str, found: Any) -> None:
    end = {"subscribe": pair, "endingOffsets": offsets(pair, 1, 12)}
    with pytest.raises(PySparkException, match="offsets 10 to 11 do not exist"):
        batch(**end).collect()
    assert found(batch(failOnDataLoss="false", **end)) == [
        (0, 0),
        *((1, offset) for offset in range(10)),
    ]


def test_missing_start_offset_is_a_loss(batch: Load, pair: str, found: Any) -> None:
    start = {"subscribe": pair, "startingOffsets": offsets(pair, 10, 11)}
    with pytest.raises(PySparkException, match="would begin at 11, but the partition ends at 10"):
        batch(**start).collect()
    assert found(batch(failOnDataLoss="false", **start)) == []


PEM = "-----BEGIN PRIVATE KEY-----\ndo-not-tell\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"security.protocol": "SSL", "ssl.key.pem": PEM}, "ssl.key.pem"),
        ({"security.protocol": "SSL", "ssl.key.pem": "do-not-tell"}, "ssl.key.pem"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.key": PEM}, "ssl.keystore"),
        ({"sasl.jaas.config": 'x.PlainLoginModule required password="do-not-tell'}, "jaas.config"),
        ({"sasl.oauthbearer.config": "principal=me do-not-tell=x"}, "sasl.oauthbearer.config"),
        ({"sasl.password": "do-not-tell", "sasl.mechanism": "NONE"}, "NONE"),
    ],
    ids=["key", "no PEM", "key store", "JAAS", "token", "mechanism"],
)
def test_secrets_are_in_no_error(
    batch: Load, pair: str, options: dict[str, str], words: str
) -> None:
    """Wrong options, which the refusing code has at hand."""
    secured = {"security.protocol": "SASL_PLAINTEXT", **options}
    given = {f"kafka.{key}": value for key, value in secured.items()}
    with pytest.raises(PySparkException) as caught:
        batch(subscribe=pair, **{"fetchOffset.numRetries": "0"}, **given).collect()
    assert words in str(caught.value)
    assert "do-not-tell" not in str(caught.value)
