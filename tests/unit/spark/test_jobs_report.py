"""The counts and reports of a job: summaries, progress, tables, bars, inferred kinds."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cykafka.spark.jobs import profile
from cykafka.spark.jobs.observing.report import (
    ProgressLine,
    Summary,
    human_bytes,
    human_time,
    table,
)
from cykafka.spark.jobs.profile import guess
from cykafka.spark.jobs.run.streams import Tally, ranges_of
from cykafka.spark.source.offsets import with_start


def report(number: int, start: Any, end: Any, **metrics: int) -> dict[str, Any]:
    """A progress report of Spark."""
    given = {"records": 1, "bytes": 10, "bad": 0, **metrics}
    return {
        "batchId": number,
        "numInputRows": given["records"],
        "batchDuration": 200,
        "observedMetrics": {"cykafka": given, "somebody's": {"records": 1_000_000}},
        "sources": [{"startOffset": start, "endOffset": end}],
    }


# -- committed batches of a query


def test_a_tally_adds_up_micro_batches_each_once() -> None:
    summary = Summary("archive")
    tally = Tally(summary)
    first = report(4, {"a": {"0": 5, "1": 0}}, {"a": {"0": 7, "1": 0}}, records=2, bytes=20)
    second = report(5, {"a": {"0": 7, "1": 0}}, {"a": {"0": 9, "1": 3}}, records=5, bad=2)

    assert tally.add_reports([first])
    assert tally.add_reports([second, first])
    assert not tally.add_reports([second])

    assert (summary.records, summary.bytes, summary.bad, summary.batches) == (7, 30, 2, 2)
    assert summary.ranges == {("a", 0): (5, 9), ("a", 1): (0, 3)}


def test_tally_waits_for_the_batch_after_an_idle_report() -> None:
    # While idle, Spark reports the number of the next micro-batch.
    summary = Summary("archive")
    tally = Tally(summary)
    idle = {"batchId": 3, "numInputRows": 0, "observedMetrics": {}, "sources": []}

    assert not tally.add_reports([idle])
    assert tally.add_reports([report(3, {"a": {"0": 0}}, {"a": {"0": 1}})])

    assert summary.records == 1


def test_tally_merges_counts_of_several_sources() -> None:
    summary = Summary("mirror")
    found = report(0, None, {"a": {"0": 1}}, sent=3)
    found["observedMetrics"]["cykafka-out"] = {"bad": 1}
    tally = Tally(summary, {0: {"late": 2}})

    tally.add_reports([found])

    assert summary.counts == {"sent": 3, "late": 2}
    assert summary.bad == 1


def test_first_batch_starts_at_the_start_in_its_end_offset() -> None:
    end = with_start({("a", 0): 9, ("7", 1): 4}, {("a", 0): 5, ("7", 1): 4})

    assert ranges_of({"startOffset": None, "endOffset": end}) == {
        ("a", 0): (5, 9),
        ("7", 1): (4, 4),
    }
    assert ranges_of({"startOffset": None, "endOffset": json.dumps(end)})["a", 0] == (5, 9)


def test_progress_reports_the_remaining_records() -> None:
    summary = Summary("archive")
    tally = Tally(summary)
    found = report(0, {"a": {"0": 0}}, {"a": {"0": 1}})
    found["sources"][0]["latestOffset"] = {"a": {"0": 1_001}}

    tally.add_reports([found])

    assert tally.words() == "archive: 1 records, 10 B, 5/s, 1,000 behind"


def test_new_partition_starts_at_the_offset_from_its_brokers() -> None:
    summary = Summary("archive")
    asked = []

    def begins(partitions: list[Any]) -> dict[Any, int]:
        asked.append(partitions)
        return {("b", 0): 1_000_000}

    Tally(summary, None, begins).add_reports(
        [report(1, {"a": {"0": 1}}, {"a": {"0": 2}, "b": {"0": 1_000_005, "1": 7}})]
    )

    assert asked == [[("b", 0), ("b", 1)]]
    # Unknown starts are omitted.
    assert summary.ranges == {("a", 0): (1, 2), ("b", 0): (1_000_000, 1_000_005)}


def test_offsets_without_a_record_are_reported() -> None:
    summary = Summary("archive")
    tally = Tally(summary)

    tally.add_reports([report(0, {"a": {"0": 10}}, {"a": {"0": 110}}, records=98)])
    tally.add_reports([report(1, {"a": {"0": 110}}, {"a": {"0": 111}}, records=1)])

    assert summary.as_dict()["offsets_without_record"] == 2
    assert "  no record    2 offsets" in summary.lines()


# -- summaries


def test_summary_is_readable_text() -> None:
    summary = Summary("mirror", records=1_234, bytes=2048, bad=3, counts={"sent": 1_231})
    summary.add_range("a", 0, 5, 10)
    summary.add_range("a", 0, 10, 12)
    summary.add_range("a", 1, 3, 3)
    summary.seconds = 2.0

    text = "\n".join(summary.lines())

    assert "mirror finished" in text
    assert "1,234" in text
    assert "2.0 KiB of keys and values" in text
    assert "617 records/s" in text
    assert ["a", "0", "5", "11", "7"] in [line.split() for line in text.splitlines()]
    # A partition without read records is not reported.
    assert ["a", "1"] not in [line.split()[:2] for line in text.splitlines()]


def test_summary_with_many_partitions_is_shortened_except_in_json(tmp_path: Path) -> None:
    summary = Summary("archive")
    for partition in range(50):
        summary.add_range("a", partition, 0, 1)

    assert "and 30 more partitions" in summary.lines()[-1]
    summary.write(str(tmp_path / "s.json"))
    document = json.loads((tmp_path / "s.json").read_text())
    assert len(document["offsets"]["a"]) == 50
    assert document["offsets"]["a"]["49"] == {"start": 0, "end": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["s.json"]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (5 * 1024**4, "5.0 TiB"),
     (3000 * 1024**4, "3,000.0 TiB")],
)  # fmt: skip
def test_bytes_are_printed_with_units(count: int, text: str) -> None:
    assert human_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (59.94, "59.9 s"), (75, "1:15"), (3_700, "1:01:40")]
)
def test_times_are_printed_with_units(seconds: float, text: str) -> None:
    assert human_time(seconds) == text


def test_numbers_are_right_aligned_in_a_table() -> None:
    lines = table(["name", "count"], [["a", "1,000"], ["long", "-"]])

    assert lines == ["  name   count", " " + "─" * 14, "  a      1,000", "  long       -"]


def test_table_has_no_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert "\x1b" not in "".join(table(["name"], [["a"]]))


# -- progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_one_updated_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = ProgressLine(10, stream)

    progress.show("x" * 100)
    long = stream.getvalue()
    assert "x" * 20 in long
    assert "x" * 40 not in long
    assert long.endswith("…")

    progress.print_line("a note")
    progress.show("short")
    progress.clear()

    # A note stands on a line of its own, and the line in place is gone at the end.
    shown = stream.getvalue().removeprefix(long)
    assert "a note\n" in shown
    assert "] short" in shown
    assert shown.endswith("\x1b[2K")


def test_progress_elsewhere_is_an_occasional_line(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stream = io.StringIO()
    progress = ProgressLine(10, stream)

    progress.show("one")
    now = 109.0
    progress.show("two")
    now = 110.0
    progress.show("three")
    now = 115.0
    progress.show("four")

    assert stream.getvalue() == "[10.0 s] three\n"


def test_progress_can_be_silent() -> None:
    stream = Terminal()
    ProgressLine(0, stream).show("one")

    assert stream.getvalue() == ""


def test_bars_are_in_proportion_to_their_values() -> None:
    assert profile._bar(1, 4) == "████"
    assert profile._bar(0.5, 4) == "██"
    assert profile._bar(0, 4) == ""
    assert profile._bar(1e-9, 4) == "▏"


# -- inferred kinds of values


def test_schema_is_inferred_from_json_objects() -> None:
    values = [
        b'{"id": 1, "price": 2, "who": {"name": "a"}, "tags": ["x"], "ok": true}',
        b'{"id": 2, "price": 2.5, "odd name": null, "who": {"age": 3}, "tags": []}',
        b"\xff\xfe",
    ]

    found = guess(values)

    assert (found["kind"], found["of"], found["sampled"]) == ("JSON objects", 2, 3)
    assert found["schema"] == (
        "id BIGINT, price DOUBLE, who STRUCT<name: STRING, age: BIGINT>, tags ARRAY<STRING>, "
        "ok BOOLEAN, `odd name` STRING"
    )
    assert found["others"] == {"binary": 1}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (b"", "empty"),
        (b"hello", "text"),
        (b"a\x01b", "binary"),
        (b"17", "numbers"),
        (b"[1]", "JSON arrays"),
        (b"true", "JSON values"),
        (b"\x00\x00\x00\x00\x07abc", "binary in the schema registry's form"),
        (b"[" * 100_000, "text"),
    ],
)
def test_kind_of_values_is_inferred(value: bytes | None, kind: str) -> None:
    assert guess([value])["kind"] == kind


def test_fields_that_differ_by_case_only_are_one_field() -> None:
    values = [b'{"ID": 1, "who": {"A": 1}}', b'{"id": 2, "who": {"a": "x"}}', b'{"id": 3}']

    assert guess(values)["schema"] == "who STRUCT<A: BIGINT>, id BIGINT"


def test_times_of_all_years_are_shown() -> None:
    assert profile._when(1_700_000_000_000) == "2023-11-14 22:13:20"
    assert profile._when(1_700_000_000_000_000) == "1,700,000,000,000,000 ms"
    assert profile._when(None) == "-"


def test_envelopes_are_recognized() -> None:
    value = b'{"message_id": "1", "message_type": "a", "message": "YWJj", "sent_time": null}'

    assert guess([value])["kind"] == "envelopes of pip-services in their form json"
    assert "form headers" in guess([b"abc"], {"message_type", "trace_id"})["kind"]


def test_kind_of_no_values_is_no_values() -> None:
    assert guess([]) == {"kind": "no values", "of": 0, "sampled": 0}


def test_large_numbers_and_mixed_values_are_inferred_as_text() -> None:
    assert guess([b'{"a": 9223372036854775808, "b": 1}', b'{"b": "x"}'])["schema"] == (
        "a STRING, b STRING"
    )


def partition(number: int, records: int, value_bytes: int = 0) -> dict[str, Any]:
    """The row of a partition in a profile."""
    return {
        "topic": "t", "partition": number, "records": records, "key_bytes": 0,
        "value_bytes": value_bytes, "null_keys": 0, "null_values": 0, "no_times": 0, "missing": 0,
        "gaps": 0,
        "keys": 1, "first_offset": 0, "last_offset": records - 1, "first_ms": 1, "last_ms": 2,
        "value_min": 1, "value_max": 9, "value_percentiles": [4, 8], "first_gaps": [],
        "largest_gap": 0,
    }  # fmt: skip


def test_empty_partitions_count_in_the_skew() -> None:
    read = [partition(2, 90), partition(3, 30)]

    rows = profile._with_empty(read, [("t", number) for number in range(12)] + [("empty", 0)])
    topics = profile._topics(rows, {"t": 7})

    assert (topics["t"]["partitions"], topics["t"]["records"]) == (12, 120)
    assert topics["t"]["skew"] == 9.0
    assert (topics["empty"]["records"], topics["empty"]["skew"]) == (0, None)
    lines = [line.split() for line in profile.lines(topics, rows)]
    assert ["t", "2", "90", "█" * 20, "1", "4", "8", "9", "0", "89"] in lines
    assert ["t", "5", "0", *["-"] * 6] in lines


def test_sample_fits_into_the_driver() -> None:
    few = [partition(number, 1_000, 100 * 1_000) for number in range(4)]
    many = [partition(number, 1_000, 10_240 * 1_000) for number in range(1_000)]
    huge = [partition(0, 1_000, 2**20 * 1_000)]

    assert profile._sample(200, few) == 200
    assert profile._sample(200, many) == 6
    # Large values are not loaded.
    assert profile._sample(200, huge) == 200
    assert profile._sample(100_000, huge) == 1_024


def test_profile_without_records_reports_it() -> None:
    assert profile.lines({}, []) == ["  no records"]
