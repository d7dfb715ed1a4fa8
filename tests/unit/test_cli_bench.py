"""The figures of ``cykafka bench``."""

from __future__ import annotations

import pytest

from cykafka.cli.commands.bench import Result, percentile
from cykafka.cli.main import main

pytestmark = pytest.mark.ours


@pytest.mark.parametrize(
    ("count", "share", "expected"),
    [(0, 0.5, None), (1, 0.99, 0), (100, 0.5, 50), (100, 0.99, 99), (100, 1.0, 99), (3, 0.5, 1)],
)
def test_percentile_of_few_and_many_values(
    count: int, share: float, expected: float | None
) -> None:
    assert percentile(range(count), share) == expected


def test_result_has_rates_and_latencies_in_ms() -> None:
    result = Result("produce", records=1000, bytes=2_000_000, seconds=0.5)
    result.latencies = [0.004, 0.001, 0.002]

    assert result.row() == ("produce", 1000, 0.5, 2000, 4.0, 2.0, 4.0, 4.0)


def test_consume_alone_without_a_topic_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "consume", "-b", "127.0.0.1:1"]) == 2
    assert "needs the records of a --topic" in capsys.readouterr().err
