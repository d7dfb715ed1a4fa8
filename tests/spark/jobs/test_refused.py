"""Records that the brokers refuse for good: dead letters of them, or a job that stops."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S
from spark_jobs import Bench

from cykafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from cykafka.spark.jobs.records import outcome
from cykafka.spark.jobs.records.outcome import RefusedError

LIMIT = 20_000
LARGE = b"x" * (LIMIT + 1_000)
FUTURE_MS = 7_258_118_400_000  # the year 2200


@pytest.fixture
def small(cluster: Any, unique: Any) -> str:
    """A topic of four partitions that refuses large records, and records of the future."""
    name = unique("small")
    cluster.create_topic(
        name, 4, config={"retention.ms": -1, "max.message.bytes": LIMIT,
                         "message.timestamp.after.max.ms": 3_600_000},
    )  # fmt: skip
    return str(name)


@pytest.fixture
def topic(cluster: Any, unique: Any) -> str:
    """A topic of four partitions that accepts all times."""
    name = unique("topic")
    cluster.create_topic(
        name, 4, config={"retention.ms": -1, "message.timestamp.after.max.ms": 2**63 - 1}
    )
    return str(name)


@pytest.fixture(params=["tasks", "Spark"])
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Keys by which the tasks of a mirror send records themselves, or Spark passes them."""
    return {} if request.param == "tasks" else {"transform": "SELECT value FROM records"}


@pytest.fixture
def raise_limit(admin: Any, small: str) -> Callable[[], None]:
    """Make the topic `small` accept large records."""

    def change() -> None:
        entry = ConfigEntry("max.message.bytes", "1000000",
                            incremental_operation=AlterConfigOpType.SET)  # fmt: skip
        resource = ConfigResource(ResourceType.TOPIC, small, incremental_configs=[entry])
        (answer,) = admin.incremental_alter_configs([resource]).values()
        answer.result(WAIT_S)

    return change


@pytest.fixture(params=["tasks", "Spark", "transactions"])
def any_way(request: pytest.FixtureRequest, unique: Any) -> dict[str, Any]:
    """The keys of `way`, or those of a mirror with transactions."""
    if request.param == "Spark":
        return {"transform": "SELECT value FROM records"}
    return transactional(unique) if request.param == "transactions" else {}


def transactional(unique: Any) -> dict[str, Any]:
    return {"sink__transactional": "true", "sink__transactionalIdPrefix": unique("tx")}


def fill(bench: Bench, topic: str, bad: dict[str, Any] | None = None) -> None:
    """Send 40 records, and a bad one in their midst: offset 20 of partition 1."""
    record: dict[str, Any] = {"key": "k", "partition": 1, "headers": [("a", b"b")]}
    records = [{**record, "value": f"v{n}", "timestamp": 1_000 + n} for n in range(40)]
    records.insert(20, {**record, **(bad or {"value": LARGE})})
    bench.send(topic, records)


def values(bench: Bench, topic: str) -> list[bytes]:
    return [message.value() for message in bench.read(topic)]


def last_values(bench: Bench, topic: str) -> list[bytes]:
    """Each value once, where it was last: requests behind a refused one may have arrived before
    their records were sent again."""
    return list(dict.fromkeys(reversed(values(bench, topic))))[::-1]


def good() -> list[bytes]:
    return [b"v%d" % number for number in range(40)]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"value": LARGE}, b"MSG_SIZE_TOO_LARGE"),
        ({"value": b"late", "timestamp": FUTURE_MS}, b"INVALID_TIMESTAMP"),
    ],
)
def test_refused_record_is_a_dead_letter(
    bench: Bench, topic: str, small: str, dead: str, checkpoint: str, any_way: dict[str, Any],
    bad: dict[str, Any], words: bytes,
) -> None:  # fmt: skip
    fill(bench, topic, bad)
    before_ms = time.time() * 1000

    summary = bench.run("mirror", topics=topic, to=small, dead_letter_topic=dead,
                        checkpoint=checkpoint, **any_way)  # fmt: skip

    assert last_values(bench, small) == good(), "not in order"
    assert (summary.records, summary.bad) == (41, 0)
    assert summary.counts == {"sent": 40, "refused": 1}
    (letter,) = bench.read(dead)
    headers = dict(letter.headers())
    assert words in headers.pop("dlq_error")
    (was,) = (message for message in bench.read(topic) if message.offset() == 20)
    assert (letter.key(), letter.value()) == (was.key(), was.value())
    assert headers == {
        "a": b"b", "dlq_topic": topic.encode(), "dlq_partition": b"1", "dlq_offset": b"20",
        "dlq_attempts": b"1", "dlq_timestamp": b"%d" % was.timestamp()[1],
    }  # fmt: skip
    assert letter.timestamp()[1] >= before_ms - 60_000


def test_dead_letter_that_does_not_fit_has_no_value(
    bench: Bench, topic: str, other_topic: str, small: str, checkpoint: str, tmp_path: Path,
    cluster: Any, any_way: dict[str, Any],
) -> None:  # fmt: skip
    dead = f"{small}.dead"
    cluster.create_topic(dead, 1, config={"max.message.bytes": LIMIT})
    fill(bench, topic)

    summary = bench.run("mirror", topics=topic, to=small, dead_letter_topic=dead,
                        checkpoint=checkpoint, **any_way)  # fmt: skip
    again = bench.run("redrive", topics=dead, checkpoint=str(tmp_path / "redrive"),
                      source__kafka__isolation__level="read_committed")  # fmt: skip

    assert summary.counts == {"sent": 40, "refused": 1}
    (letter,) = bench.read(dead)
    headers = dict(letter.headers())
    assert (letter.key(), letter.value()) == (b"k", None)
    assert (headers["dlq_offset"], headers["dlq_without_value"]) == (b"20", b"true")
    # Without its value, the record would be a tombstone in its topic.
    assert (again.records, again.bad, again.counts["sent"]) == (1, 1, 0)
    assert len(bench.read(topic)) == 41


def test_bad_record_that_does_not_fit_as_a_dead_letter_has_no_value(
    bench: Bench, topic: str, other_topic: str, small: str, checkpoint: str
) -> None:
    bench.send(topic, [{"value": value, "partition": 0} for value in (b'{"id": 1}', LARGE)])

    summary = bench.run("mirror", topics=topic, to=other_topic, dead_letter_topic=small,
                        schema="id BIGINT", checkpoint=checkpoint)  # fmt: skip

    assert (summary.counts, summary.bad) == ({"sent": 1}, 1)
    (letter,) = bench.read(small)
    assert (letter.value(), dict(letter.headers())["dlq_offset"]) == (None, b"1")


def test_mirror_without_a_dead_letter_topic_stops_before_it_repeats_records(
    bench: Bench, topic: str, small: str, checkpoint: str, way: dict[str, Any],
    raise_limit: Callable[[], None],
) -> None:  # fmt: skip
    fill(bench, topic)
    keys = {"topics": topic, "to": small, "checkpoint": checkpoint, **way}

    sent: list[bytes] = []
    for expected in ("MSG_SIZE_TOO_LARGE", "nothing was sent, because the last run has stopped"):
        with pytest.raises(Exception, match='on_refused = "skip"') as caught:
            bench.run("mirror", **keys)
        assert f"offset 20 of {topic} [1]" in str(caught.value)
        assert expected in str(caught.value)
        assert last_values(bench, small) == good()
        sent = sent or values(bench, small)
        assert values(bench, small) == sent, "the records were sent again"
    bench.run("mirror", on_refused="skip", dry_run=True, **keys)
    raise_limit()
    done = bench.run("mirror", on_refused="retry", **keys)

    assert done.counts == {"sent": 41}
    assert LARGE in values(bench, small)
    assert not (Path(checkpoint) / outcome.REFUSED_NOTE).exists()
    assert bench.run("mirror", **keys).records == 0


def test_mirror_with_transactions_stops_before_it_sends_records(
    bench: Bench, topic: str, small: str, checkpoint: str, unique: Any
) -> None:
    fill(bench, topic)
    keys = {"topics": topic, "to": small, "checkpoint": checkpoint, **transactional(unique)}

    for expected in ("MSG_SIZE_TOO_LARGE", "nothing was sent, because the last run has stopped"):
        with pytest.raises(Exception, match='on_refused = "skip"') as caught:
            bench.run("mirror", **keys)
        assert f"offset 20 of {topic} [1]" in str(caught.value)
        assert expected in str(caught.value)
        assert values(bench, small) == []
    done = bench.run("mirror", on_refused="skip", **keys)

    assert done.counts == {"sent": 40, "refused": 1}
    assert values(bench, small) == good()


def test_refused_records_are_left_out_on_request(
    bench: Bench, topic: str, small: str, checkpoint: str, any_way: dict[str, Any]
) -> None:
    fill(bench, topic)

    summary = bench.run("mirror", topics=topic, to=small, checkpoint=checkpoint,
                        on_refused="skip", **any_way)  # fmt: skip

    assert summary.counts == {"sent": 40, "refused": 1}
    assert last_values(bench, small) == good()
    assert "  refused      1" in summary.lines()


def test_refused_dead_letter_is_parked(
    bench: Bench, small: str, dead: str, checkpoint: str, cluster: Any, unique: Any
) -> None:
    parking = unique("parking")
    cluster.create_topic(parking, 1)
    own = [("dlq_topic", small.encode()), ("dlq_partition", b"2"), ("dlq_offset", b"7"),
           ("dlq_error", b"oh"), ("dlq_attempts", b"3")]  # fmt: skip
    bench.send(dead, [{"value": value, "key": "k", "headers": own} for value in (b"a", LARGE)])

    summary = bench.run("redrive", topics=dead, parking_topic=parking, checkpoint=checkpoint)

    assert summary.counts == {"sent": 1, "exhausted": 0, "skipped": 0, "refused": 1}
    assert values(bench, small) == [b"a"]
    (parked,) = bench.read(parking)
    assert (parked.value(), parked.headers()) == (LARGE, own)


@pytest.mark.parametrize("where", [None, "true"], ids=["tasks", "Spark"])
def test_replay_stops_at_a_refused_record_until_it_may_go_on(
    bench: Bench, topic: str, small: str, places: dict[str, str], tmp_path: Path, where: str | None
) -> None:
    fill(bench, topic)
    bench.run("archive", topics=topic, file_names="deterministic", **places)
    keys = {"path": places["path"], "to": small, "checkpoint": str(tmp_path / "replayed")}
    keys |= {"where": where} if where else {}

    first = bench.prepare("replay", **keys)
    with pytest.raises(RefusedError, match=r"offset 20 of .* \[1\]"):
        bench.work("replay", first)
    with pytest.raises(RefusedError, match="nothing was sent, because the last run has stopped"):
        bench.run("replay", **keys)
    assert last_values(bench, small) == good()
    done = bench.run("replay", on_refused="skip", **keys)

    # The summary of a failed run counts what was sent.
    assert (first.summary.counts, first.summary.unknown) == ({"sent": 40}, 0)
    assert done.counts == {"sent": 40, "refused": 1}


def test_small_requests_are_no_reason_to_refuse_records(
    bench: Bench, topic: str, small: str, checkpoint: str
) -> None:
    """Brokers refuse requests that are larger than the topic's limit, whatever is in them."""
    bench.send(topic, [{"value": b"%06d" % number + b"x" * 500, "partition": 0}
                       for number in range(1_000)])  # fmt: skip

    summary = bench.run("mirror", topics=topic, to=small, checkpoint=checkpoint,
                        keep_partitions=True)  # fmt: skip

    assert summary.counts == {"sent": 1_000}
    assert newest([int(item[:6]) for item in values(bench, small)]) == list(range(1_000))


def newest(found: list[int]) -> list[int]:
    """Numbers in the order of their last places."""
    last = {number: place for place, number in enumerate(found)}
    return sorted(last, key=lambda number: last[number])


def test_records_beside_a_refused_one_do_not_pass_later_ones(
    bench: Bench, topic: str, small: str, checkpoint: str
) -> None:
    """Brokers refuse a record's whole request, and take the requests after it."""
    times = [FUTURE_MS if number == 45 else 1_000 for number in range(100)]
    bench.send(topic, [{"value": b"%d" % number, "partition": 0, "timestamp": time}
                       for number, time in enumerate(times)])  # fmt: skip

    summary = bench.run("mirror", topics=topic, to=small, checkpoint=checkpoint,
                        keep_partitions=True, on_refused="skip",
                        sink__kafka__batch__num__messages=10)  # fmt: skip

    assert summary.counts == {"sent": 99, "refused": 1}
    expected = [number for number in range(100) if number != 45]
    assert newest([int(item) for item in values(bench, small)]) == expected
