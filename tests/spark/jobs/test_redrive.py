"""The job redrive on a real broker: dead letters go back to their topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench

from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.run.session import Stop


@pytest.fixture
def parking(cluster: Any, unique: Any) -> str:
    name = unique("parking")
    cluster.create_topic(name, 1)
    return str(name)


def letter(
    topic: str, number: int, error: str = "oh", partition: int = 2, **more: Any
) -> dict[str, Any]:
    """A dead letter like those of pip_services4_kafka's move_to_dead_letter()."""
    headers = [
        ("message_type", b"order"),
        *more.pop("before", []),
        ("dlq_topic", topic.encode()),
        ("dlq_partition", str(partition).encode()),
        ("dlq_offset", str(number).encode()),
        ("dlq_error", error.encode()),
        ("dlq_attempts", b"3"),
    ]
    return {"key": f"k{number}", "value": f"v{number}", "headers": headers,
            "timestamp": 1_700_000_000_000, **more}  # fmt: skip


def test_dead_letters_go_back_once(bench: Bench, topic: str, dead: str, checkpoint: str) -> None:
    twice_dead = [("dlq_topic", b"elsewhere"), ("dlq_partition", b"9"), ("redrive_attempts", b"1")]
    bench.send(dead, [letter(topic, 0), letter(topic, 1, before=twice_dead)])
    keys = {"topics": dead, "checkpoint": checkpoint, "keep_timestamps": True}

    summary = bench.run("redrive", **keys)
    again = bench.run("redrive", **keys)

    assert (summary.records, summary.bad, again.records) == (2, 0, 0)
    assert summary.counts == {"sent": 2, "exhausted": 0, "skipped": 0}
    first, second = bench.read(topic, 2)
    assert (first.partition(), first.key(), first.value()) == (2, b"k0", b"v0")
    assert first.timestamp()[1] == 1_700_000_000_000
    assert first.headers() == [("message_type", b"order"), ("redrive_attempts", b"1")]
    assert second.headers() == [("message_type", b"order"), ("redrive_attempts", b"2")]


def test_each_record_is_counted_in_one_category(
    bench: Bench, topic: str, dead: str, parking: str, checkpoint: str
) -> None:
    bench.send(
        dead,
        [
            letter(topic, 0, "timeout"),
            letter(topic, 1, "fatal"),
            letter(topic, 2, "timeout", before=[("redrive_attempts", b"3")]),
            {"value": b"stray", "headers": [("dlq_error", b"timeout")]},
            {"value": b"stranger"},
            letter("no such topic!", 5, "timeout"),
        ],
    )

    summary = bench.run(
        "redrive", topics=dead, checkpoint=checkpoint, where="dlq_error LIKE '%timeout%'",
        max_attempts=3, parking_topic=parking,
    )  # fmt: skip

    assert summary.counts == {"sent": 1, "exhausted": 1, "skipped": 2}
    assert (summary.records, summary.bad) == (6, 2)
    assert [message.value() for message in bench.read(topic)] == [b"v0"]
    parked = bench.read(parking)
    assert [message.value() for message in parked] == [b"v2", b"stray", b"v5"]
    assert ("dlq_error", b"timeout") in parked[0].headers(), "the record has changed"


@pytest.mark.parametrize("parked", [True, False])
def test_letter_of_a_missing_topic_or_partition_stops_no_other(
    bench: Bench, topic: str, dead: str, parking: str, checkpoint: str, unique: Any,
    delete_topic: Any, cluster: Any, parked: bool,
) -> None:  # fmt: skip
    gone = unique("gone")
    cluster.create_topic(gone, 3)
    delete_topic(gone)
    bench.send(dead, [letter(gone, 0), letter(topic, 1), letter(topic, 2, partition=9)])
    keys = {"topics": dead, "checkpoint": checkpoint}

    summary = bench.run("redrive", **keys, **({"parking_topic": parking} if parked else {}))

    assert (summary.records, summary.bad, summary.counts["sent"]) == (3, 2, 1)
    assert [message.value() for message in bench.read(topic)] == [b"v1"]
    left = [message.value() for message in bench.read(parking)]
    assert left == ([b"v0", b"v2"] if parked else [])


def test_missing_partition_does_not_matter_if_letters_go_by_key(
    bench: Bench, topic: str, dead: str, checkpoint: str
) -> None:
    bench.send(dead, [letter(topic, 2, partition=9)])

    summary = bench.run("redrive", topics=dead, checkpoint=checkpoint, keep_partitions=False)

    assert (summary.bad, summary.counts["sent"]) == (0, 1)
    assert [message.value() for message in bench.read(topic)] == [b"v2"]


def test_stream_sees_topics_created_while_it_runs(
    bench: Bench, dead: str, parking: str, checkpoint: str, unique: Any, cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    late, stop = unique("late"), Stop()
    bench.send(dead, [letter(late, 0)])
    run = bench.prepare("redrive", stop, topics=dead, checkpoint=checkpoint,
                        parking_topic=parking, trigger="continuous")  # fmt: skip
    made = []

    def make_it(words: str, **_: Any) -> None:
        if run.summary.records == 1 and not made:
            cluster.create_topic(late, 4)
            bench.send(dead, [letter(late, 1)])
            made.append(late)
        if run.summary.records == 2 and not stop.asked:
            stop.ask()

    monkeypatch.setattr(run.progress, "show", make_it)
    summary = bench.work("redrive", run)

    assert (summary.outcome, summary.bad, summary.counts["sent"]) == ("stopped", 1, 1)
    assert [message.value() for message in bench.read(parking)] == [b"v0"]
    assert [message.value() for message in bench.read(late)] == [b"v1"]


def test_empty_dead_letter_topic_sends_nothing(
    bench: Bench, topic: str, dead: str, checkpoint: str
) -> None:
    empty = bench.run("redrive", topics=dead, checkpoint=checkpoint)
    bench.send(dead, [letter(topic, 0)])
    filled = bench.run("redrive", topics=dead, checkpoint=checkpoint)

    assert (empty.records, empty.outcome, filled.counts["sent"]) == (0, "finished", 1)


def test_a_dry_run_sends_nothing_and_keeps_the_position(
    bench: Bench, topic: str, dead: str, checkpoint: str
) -> None:
    bench.send(dead, [letter(topic, number) for number in range(3)])

    dry = bench.run("redrive", topics=dead, checkpoint=checkpoint, dry_run=True)
    assert bench.read(topic) == []
    done = bench.run("redrive", topics=dead, checkpoint=checkpoint, keep_partitions=False)

    assert dry.details == {"would_send": {topic: 3}}
    assert dry.ranges == done.ranges == {(dead, 0): (0, 3)}
    assert len(bench.read(topic, 3)) == 3


def test_dead_letters_of_mirror_are_redriven(
    bench: Bench, topic: str, other_topic: str, dead: str, tmp_path: Path
) -> None:
    bench.send(topic, [{"value": b"[", "key": "k", "partition": 1, "headers": [("a", None)],
                        "timestamp": 1_700_000_000_000}])  # fmt: skip
    bench.run("mirror", topics=topic, to=other_topic, dead_letter_topic=dead, schema="id BIGINT",
              checkpoint=str(tmp_path / "mirror"))  # fmt: skip

    # Any program may write headers, so an invalid time is ignored.
    bench.send(dead, [letter(topic, 7, before=[("dlq_timestamp", b"9223372036854775807")])])
    bench.run("redrive", topics=dead, checkpoint=str(tmp_path / "redrive"), keep_timestamps=True)

    was, now = (message for message in bench.read(topic, 3) if message.partition() == 1)
    assert was.timestamp() == now.timestamp(), "the timestamp is that of the dead letter"
    assert (was.partition(), was.key(), was.value()) == (now.partition(), now.key(), now.value())
    assert now.headers() == [("a", None), ("redrive_attempts", b"1")]


def test_invalid_condition_is_a_configuration_error(
    bench: Bench, dead: str, checkpoint: str
) -> None:
    with pytest.raises(ConfigError, match=r"where\" = 'dlq_eror = 1'.*cannot be resolved"):
        bench.run("redrive", topics=dead, checkpoint=checkpoint, where="dlq_eror = 1")
