"""``cykafka bench`` on a real broker."""

from __future__ import annotations

import pytest
from command_line import Run
from fixture_types import MakeProducer, Unique, WaitUntil

pytestmark = pytest.mark.ours


def topics(run_cli: Run) -> set[str]:
    rows = run_cli("topics", "list", "--json").rows
    return {row["topic"] for row in rows if row["topic"].startswith("cykafka-bench-")}


def test_bench_measures_all_phases_and_removes_its_topic(
    run_cli: Run, wait_until: WaitUntil
) -> None:
    before = topics(run_cli)

    rows = run_cli("bench", "--records", 5_500, "--size", 50, "--round-trips", 20, "--json").rows

    assert [row["phase"] for row in rows] == ["produce", "consume", "round-trip"]
    assert [row["records"] for row in rows] == [5_500, 5_500, 20]
    for row in rows:
        assert row["seconds"] > 0
        assert row["records_per_s"] > 0
    for row in (rows[0], rows[2]):
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert rows[1]["p50_ms"] is None
    wait_until(lambda: topics(run_cli) <= before)


def test_bench_of_an_existing_topic_leaves_it(run_cli: Run, topic: str) -> None:
    run_cli("bench", "--topic", topic, "--only", "produce", "--records", 100, "--size", 7)
    (read,) = run_cli("bench", "--topic", topic, "--only", "consume", "--json").rows

    assert read["records"] == 100
    rows = run_cli("topics", "offsets", topic, "--json").rows
    assert sum(row["records"] for row in rows) == 100


def test_bench_of_a_topic_with_gaps_reads_what_is_there(
    run_cli: Run, topic: str, make_producer: MakeProducer, unique: Unique
) -> None:
    producer = make_producer({"transactional.id": unique("gaps")})
    producer.init_transactions()
    for ends in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.publish(topic, [b"x"] * 10, partitions=0).wait()
        ends()

    (read,) = run_cli("bench", "--topic", topic, "--only", "consume", "--json").rows

    assert read["records"] == 10


def test_bench_reports_a_refused_record_at_once(run_cli: Run, topic: str) -> None:
    refused = run_cli("bench", "--topic", topic, "--only", "round-trip", "--size", 2_000_000,
                      "-X", "message.max.bytes=5000000", "--timeout", 600, status=1)  # fmt: skip

    assert "a record was not delivered: Broker: Message size too large" in refused.error


def test_bench_failure_removes_its_topic(run_cli: Run, wait_until: WaitUntil) -> None:
    before = topics(run_cli)

    failed = run_cli("bench", "--size", 2_000_000, "--records", 3, "-X",
                     "message.max.bytes=5000000", status=1)  # fmt: skip

    assert "records were not delivered" in failed.error
    wait_until(lambda: topics(run_cli) <= before)


def test_bench_of_a_missing_topic_is_refused(run_cli: Run, unique: Unique) -> None:
    missing = run_cli("bench", "--topic", unique("missing"), status=1)

    assert "does not exist" in missing.error
