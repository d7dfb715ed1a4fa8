"""The job mirror on a real broker."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench

import cykafka
from cykafka.spark.jobs.problems import ConfigError, Stopped
from cykafka.spark.jobs.run.session import Stop


def headers(message: Any) -> dict[str, bytes | None]:
    return dict(message.headers() or [])


def test_mirrored_records_have_their_origin(
    bench: Bench, topic: str, other_topic: str, checkpoint: str
) -> None:
    bench.fill(topic, 20)
    bench.send(topic, [{"value": None, "key": None, "partition": 3, "timestamp": 1_000}])
    keys = {"topics": topic, "to": other_topic, "keep_partitions": True, "checkpoint": checkpoint}

    summary = bench.run("mirror", **keys)
    again = bench.run("mirror", **keys)

    assert (summary.records, summary.counts, summary.bad) == (81, {"sent": 81}, 0)
    assert summary.ranges[topic, 3] == (0, 21)
    assert again.records == 0
    sent = bench.read(other_topic, 81)
    for was, now in zip(bench.read(topic), sent, strict=True):
        assert (now.partition(), now.key(), now.value()) == (
            was.partition(),
            was.key(),
            was.value(),
        )
        assert now.timestamp() == was.timestamp()
        assert now.headers() == [
            *(was.headers() or []),
            ("source_topic", topic.encode()),
            ("source_partition", str(was.partition()).encode()),
            ("source_offset", str(was.offset()).encode()),
            ("source_timestamp", str(was.timestamp()[1]).encode()),
        ]


def test_options_that_the_sink_ignores_are_reported(
    bench: Bench, topic: str, other_topic: str, checkpoint: str
) -> None:
    summary = bench.run(
        "mirror",
        topics=topic,
        to=other_topic,
        checkpoint=checkpoint,
        sink__kafka__security__providers="x",
    )

    assert summary.warnings == [
        "only the JVM client has these options, so they are ignored: kafka.security.providers"
    ]


def test_transform_turns_records_into_records(
    bench: Bench, topic: str, other_topic: str, checkpoint: str
) -> None:
    bench.fill(topic, 10)

    summary = bench.run(
        "mirror",
        topics=topic,
        to=other_topic,
        transform="SELECT upper(string(value)) AS value, CAST(NULL AS STRING) AS key, "
        "2 AS partition FROM records WHERE offset >= 8",
        source_headers=False,
        checkpoint=checkpoint,
    )

    # The job read all records, as the offsets of the summary show.
    assert (summary.records, summary.counts) == (40, {"sent": 8})
    sent = bench.read(other_topic)
    assert sorted(message.value() for message in sent) == sorted(
        f"V{p}-{n}".encode() for p in range(4) for n in (8, 9)
    )
    assert {(message.key(), message.partition()) for message in sent} == {(None, 2)}
    assert headers(sent[0]).keys() == {"n", "null"}


def test_rows_with_an_error_are_dead_letters(
    bench: Bench, topic: str, other_topic: str, dead: str, checkpoint: str
) -> None:
    values = [b"1", b"x", b"3", None]
    bench.send(topic, [{"value": v, "key": "k", "partition": 1, "headers": [("a", b"b")],
                        "timestamp": 1_000} for v in values])  # fmt: skip
    before_ms = time.time() * 1000

    summary = bench.run(
        "mirror",
        topics=topic,
        dead_letter_topic=dead,
        transform=f"""
            SELECT try_cast(string(value) AS INT) + 1 || '' AS value,
                   CASE WHEN offset < 3 THEN '{other_topic}' END AS topic,
                   CASE WHEN try_cast(string(value) AS INT) IS NULL AND value IS NOT NULL
                        THEN 'no number' END AS error
            FROM records""",
        checkpoint=checkpoint,
    )

    assert (summary.records, summary.counts, summary.bad) == (4, {"sent": 2}, 2)
    assert [message.value() for message in bench.read(other_topic)] == [b"2", b"4"]
    first, second = bench.read(dead, 2)
    assert (first.key(), first.value(), second.value()) == (b"k", b"x", None)
    assert first.headers() == [
        ("a", b"b"), ("dlq_topic", topic.encode()), ("dlq_partition", b"1"), ("dlq_offset", b"1"),
        ("dlq_error", b"no number"), ("dlq_attempts", b"1"), ("dlq_timestamp", b"1000"),
    ]  # fmt: skip
    # A dead letter gets a new timestamp, else retention might delete it unseen.
    assert first.timestamp()[1] >= before_ms - 60_000
    assert {message.timestamp()[1] for message in bench.read(other_topic)} == {1_000}
    assert headers(second)["dlq_error"] == b"the transform returns no topic"


@pytest.mark.parametrize("transform", [None, "SELECT to_json(json) AS value FROM records "
                                             "WHERE json.id > 1"])  # fmt: skip
def test_record_that_does_not_match_the_schema_is_a_dead_letter(
    bench: Bench, topic: str, other_topic: str, dead: str, checkpoint: str,
    transform: str | None,
) -> None:  # fmt: skip
    values = [b'{"id": 1}', b'{"id": 2}', b"[", b'{"id": "x"}', b'{"id": 3}']
    bench.send(topic, [{"value": value, "partition": 0} for value in values])
    keys = {"topics": topic, "to": other_topic, "dead_letter_topic": dead, "schema": "id BIGINT"}
    if transform:
        keys["transform"] = transform

    summary = bench.run("mirror", source__maxOffsetsPerTrigger=2, checkpoint=checkpoint, **keys)

    expected = [b'{"id":2}', b'{"id":3}'] if transform else [values[0], values[1], values[4]]
    assert sorted(message.value() for message in bench.read(other_topic)) == sorted(expected)
    assert [message.value() for message in bench.read(dead)] == values[2:4]
    assert (summary.records, summary.bad, summary.batches) == (5, 2, 3)
    assert summary.counts == {"sent": len(expected)}


def test_values_of_which_spark_would_read_a_part_are_bad_records(
    bench: Bench, topic: str, other_topic: str, dead: str, checkpoint: str
) -> None:
    good = [
        b'{"id": 1, "price": 1.5, "of": {"prices": [1e3, 2E-3]}}',
        b' {"id": null, "text": "3e99999 and \\" } , ] 1e9999999", "other": 1e9999999}\n',
        b'{"text": "}"}',
        b"{}",
        b'{"id": 1, "ID": 2, "of": {"other": 1}}',
        b'{"many": [{"n": 1, "of": {}}, {}, null], "by": {"N": {"n": 1}, "OF": null}}',
    ]
    bad = {
        b'{"id": 1} {"id": 2}': "does not match the schema",
        b'{"id": 1} and more': "does not match the schema",
        b'{"id": 1}}': "does not match the schema",
        b'{"id": 1}]': "does not match the schema",
        b'{"id": 1},': "does not match the schema",
        b'{"id": 1},"end":1} and more': "does not match the schema",
        b'[{"id": 1}]': "does not match the schema",
        b'{"ID": 5}': "the value has the field id in another case only",
        b'{"\\u0049D": 5}': "the value has the field id in another case only",
        b'{"of": {"PRICES": [1]}}': "the value has the field of.prices in another case only",
        b'{"many": [{"n": 1}, {"N": 2}]}': "the field many[].n in another case only",
        b'{"many": [{"n": 1, "of": {"M": 2}}]}': "the field many[].of.m in another case only",
        b'{"by": {"a": {"n": 1, "OF": {}}}}': "the field by{}.of in another case only",
        b'{"price": 1e9999999}': "a number for a DECIMAL whose exponent has more than 3 digits",
        b'{"price": "1E-9999999"}': "a number for a DECIMAL whose exponent has more than 3 digits",
        b'{"price": -1E-9999999}': "a number for a DECIMAL whose exponent has more than 3 digits",
        b'{"of": {"prices": [1, 1e+0099999]}}': "a number for a DECIMAL whose exponent has more",
    }
    bench.send(topic, [{"value": value, "partition": 0} for value in (*good, *bad)])

    part = "STRUCT<n: INT, of: STRUCT<m: INT>>"
    schema = (
        "id BIGINT, price DECIMAL(10, 2), text STRING, of STRUCT<prices: ARRAY<DECIMAL(9,3)>>, "
        f"many ARRAY<{part}>, by MAP<STRING, {part}>"
    )
    summary = bench.run("mirror", topics=topic, to=other_topic, dead_letter_topic=dead,
                        schema=schema, checkpoint=checkpoint)  # fmt: skip

    assert sorted(message.value() for message in bench.read(other_topic)) == sorted(good)
    letters = bench.read(dead)
    assert {
        message.value(): headers(message)["dlq_error"].decode() for message in letters
    }.keys() == {*bad}
    for letter in letters:
        assert bad[letter.value()] in headers(letter)["dlq_error"].decode()
    assert (summary.bad, summary.counts) == (len(bad), {"sent": len(good)})


@pytest.mark.parametrize("way", [{}, {"transform": "SELECT value FROM records"}])
def test_times_beyond_those_of_spark_are_kept(
    bench: Bench, cluster: Any, unique: Any, checkpoint: str, way: dict[str, str]
) -> None:
    topic, other = unique("far"), unique("far")
    for name in (topic, other):
        cluster.create_topic(
            name, 1, config={"retention.ms": -1, "message.timestamp.after.max.ms": 2**63 - 1}
        )
    times = [1_000, 10**16, 2_000]
    bench.send(topic, [{"value": b"x", "headers": [("a", b"b")], "timestamp": at} for at in times])

    bench.run("mirror", topics=topic, to=other, checkpoint=checkpoint, **way)

    sent = bench.read(other)
    assert [message.timestamp()[1] for message in sent] == times
    assert [headers(message)["source_timestamp"] for message in sent] == [
        b"%d" % at for at in times
    ]
    assert {len(message.headers()) for message in sent} == {5}


def test_empty_topic_is_mirrored_once_it_has_records(
    bench: Bench, topic: str, other_topic: str, checkpoint: str
) -> None:
    keys = {"topics": topic, "to": other_topic, "checkpoint": checkpoint}

    empty = bench.run("mirror", **keys)
    bench.fill(topic, 3)
    filled = bench.run("mirror", **keys)

    assert (empty.records, empty.ranges, empty.outcome) == (0, {}, "finished")
    assert (filled.records, filled.without_record) == (12, 0)
    assert len(bench.read(other_topic)) == 12


# Each record takes some time. It is so large that no buffer holds it back for the next one, so an
# interrupted batch has sent some records.
SLOW = """
    SELECT value || repeat('x', 70000) AS value,
           CASE WHEN reflect('java.lang.Thread', 'sleep', 50L) = '' THEN 'no' END AS error
    FROM records"""
PER_BATCH = 40


@pytest.mark.parametrize("trigger", ["continuous", "available-now"])
def test_stop_finishes_the_running_batch_and_starts_no_other(
    bench: Bench, topic: str, other_topic: str, checkpoint: str, trigger: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    bench.fill(topic, 100)
    size = "spark.sql.execution.arrow.maxRecordsPerBatch"
    keys = {"topics": topic, "to": other_topic, "checkpoint": checkpoint, "transform": SLOW,
            "source__maxOffsetsPerTrigger": PER_BATCH}  # fmt: skip
    stop = Stop()
    run = bench.prepare("mirror", stop, trigger=trigger, **keys)
    places = [cykafka.TopicPartition(other_topic, partition) for partition in range(4)]
    asked_at = []

    def stop_in_the_midst(words: str, **_: Any) -> None:
        sent = sum(ends.high for ends in client.watermarks(places, 30).values())
        midst = sent > PER_BATCH and sent % PER_BATCH
        if (midst or sent == 400) and not stop.asked:
            stop.ask()
            asked_at.append(sent)

    monkeypatch.setattr(run.progress, "show", stop_in_the_midst)
    before = bench.spark.conf.get(size)
    bench.spark.conf.set(size, "1")
    config = {"bootstrap.servers": bench.servers, "group.id": "ends"}
    try:
        with cykafka.Consumer(config) as client:
            if trigger == "continuous":
                assert bench.work("mirror", run).outcome == "stopped"
            else:
                # The stopped job must not look complete.
                with pytest.raises(Stopped, match="stopped before all records were read"):
                    bench.work("mirror", run)
    finally:
        bench.spark.conf.set(size, before)

    summary = run.summary
    assert len(bench.read(other_topic)) == summary.records
    # At most the batch in progress when the job checks for a stop.
    assert asked_at[0] < 400, "no check of the topic came during a micro-batch"
    assert asked_at[0] < summary.records <= asked_at[0] + 2 * PER_BATCH
    assert not run.stop_file.exists()
    rest = bench.run("mirror", **{**keys, "transform": "SELECT value FROM records"})
    assert (rest.outcome, summary.records + rest.records) == ("finished", 400)
    sent = [headers(message) for message in bench.read(other_topic, 400)]
    assert len(sent) == 400
    assert (
        len({(message["source_partition"], message["source_offset"]) for message in sent}) == 400
    )


def test_stop_that_takes_too_long_raises_stopped(
    bench: Bench, topic: str, other_topic: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.fill(topic, 100)
    stop = Stop()
    run = bench.prepare("mirror", stop, topics=topic, to=other_topic, checkpoint=checkpoint,
                        transform=SLOW.replace("50L", "1000L"), trigger="continuous",
                        stop_timeout=5)  # fmt: skip
    # The stop is requested once the first micro-batch has begun.
    query_began = Path(checkpoint) / "offsets" / "0"

    def stop_when_it_began(words: str, **_: Any) -> None:
        stop.asked = int(query_began.exists())

    monkeypatch.setattr(run.progress, "show", stop_when_it_began)

    with pytest.raises(Stopped, match="within a micro-batch"):
        bench.work("mirror", run)

    assert (run.summary.outcome, run.summary.records) == ("stopped", 0)


def test_a_dry_run_that_cannot_start_leaves_nothing(
    bench: Bench, topic: str, other_topic: str, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"topics": topic, "to": other_topic, "checkpoint": checkpoint}
    bench.run("mirror", **keys)
    # A query cannot continue from this checkpoint.
    (Path(checkpoint) / "metadata").write_text("no metadata")

    with pytest.raises(Exception, match="metadata"):
        bench.run("mirror", dry_run=True, **keys)

    assert [path.name for path in Path(checkpoint).parent.iterdir()] == ["checkpoint"]


def test_a_dry_run_sends_nothing_and_keeps_the_position(
    bench: Bench, topic: str, other_topic: str, checkpoint: str
) -> None:
    keys = {"topics": topic, "to": other_topic, "checkpoint": checkpoint}
    bench.fill(topic, 2)
    bench.run("mirror", **keys)
    bench.fill(topic, 3)

    dry = bench.run("mirror", dry_run=True, **keys)
    assert len(bench.read(other_topic)) == 8
    done = bench.run("mirror", **keys)

    assert dry.ranges == done.ranges == {(topic, partition): (2, 5) for partition in range(4)}
    assert dry.details == {"would_send": {other_topic: 12}}
    assert (dry.counts, done.counts) == ({"sent": 0}, {"sent": 12})
    assert dry.lines()[0] == "mirror finished (a dry run: nothing was sent)"
    assert len(bench.read(other_topic)) == 20
    folder = Path(checkpoint).parent
    assert [path.name for path in folder.iterdir() if "dry" in path.name] == []


@pytest.mark.parametrize(
    ("transform", "expected_text"),
    [
        ("SELEC value", "Syntax error"),
        ("SELECT nothing AS value FROM records", "`nothing` cannot be resolved"),
        ("SELECT key FROM records", "the column value is missing"),
        (
            "SELECT offset AS value FROM records",
            "the column value is of type bigint, expected bina",
        ),
        ("SELECT value, 1 AS other FROM records", "the column other cannot be sent"),
        ("SELECT DISTINCT value FROM records", "the column source is missing"),
    ],
)
def test_invalid_transform_is_a_configuration_error(
    bench: Bench, topic: str, checkpoint: str, transform: str, expected_text: str
) -> None:
    with pytest.raises(ConfigError, match=expected_text) as caught:
        bench.run("mirror", topics=topic, to="t", transform=transform, checkpoint=checkpoint)

    assert 'key "transform"' in str(caught.value)
    assert "SQLSTATE" not in str(caught.value)
