"""The benchmarks: spreads, paired ratios, verdicts, and the work of each contender."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OWN = (
    "_figures",
    "_model",
    "_suite",
    "_floor",
    "_brokers",
    "_published",
    "_runner",
    "_report",
    "_spark_suite",
    "_spark_report",
    "_spark_plan",
    "clients",
)


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make the folder importable for the test, and unload its modules afterwards."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in list(sys.modules):
        if name.split(".")[0] in OWN:
            del sys.modules[name]


@pytest.fixture
def figures() -> ModuleType:
    import _figures

    return _figures


def result(**numbers: float) -> dict[str, float]:
    return {"messages": 10_000, "wall": 1.0, "cpu_us": 1.0, "peak_rss_kb": 1024, **numbers}


def test_spread_has_median_quartiles_and_extremes(figures: ModuleType) -> None:
    spread = figures.Spread.of([5, 1, 4, 2, 3])

    assert (spread.median, spread.lower, spread.upper) == (3, 2, 4)
    assert (spread.low, spread.high) == (1, 5)


def test_spread_ignores_nan_values(figures: ModuleType) -> None:
    assert figures.Spread.of([math.nan, 2, math.nan]).median == 2
    assert math.isnan(figures.Spread.of([math.nan]).median)


def test_ratios_are_paired_by_round(figures: ModuleType) -> None:
    # Round two is twice as slow for both: the ratio is the same.
    assert figures.ratios([1.0, 2.0], [2.0, 4.0]) == [0.5, 0.5]


@pytest.mark.parametrize("least", [0.0, -0.1])
def test_ratio_is_unknown_when_the_other_has_no_overhead(
    figures: ModuleType, least: float
) -> None:
    assert math.isnan(figures.ratios([1.0], [least])[0])


def test_ratios_of_unequal_numbers_of_rounds_are_refused(figures: ModuleType) -> None:
    with pytest.raises(ValueError, match="argument 2"):
        figures.ratios([1.0, 1.0], [1.0])


def test_overheads_are_above_the_floor_of_the_same_round(figures: ModuleType) -> None:
    client, floor = [result(cpu_us=3.0), result(cpu_us=5.0)], [result(), result(cpu_us=2.0)]

    assert figures.overheads(client, floor) == [2.0, 3.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.8, 0.9, 0.95], "met"),
        ([0.8, 0.9, 1.3], "met, within the noise"),
        ([0.8, 1.05, 1.1], "MISSED, within the noise"),
        ([1.2, 1.3, 1.4], "MISSED"),
        ([1.0, 1.0, 1.0], "met"),
    ],
)
def test_verdict_judges_the_median_and_marks_close_results(
    figures: ModuleType, values: list[float], expected: str
) -> None:
    assert figures.verdict(figures.Spread.of(values), 1.0) == expected


def test_verdict_without_figures_is_unknown(figures: ModuleType) -> None:
    assert figures.verdict(figures.Spread.of([]), 1.0).startswith("unknown")


def test_percentiles_are_of_the_sorted_latencies_in_us(figures: ModuleType) -> None:
    found = figures.percentiles([i / 1e6 for i in reversed(range(1000))])

    assert found == pytest.approx({"p50_us": 500, "p99_us": 990, "p99_9_us": 999})


def test_peak_ratio_allows_for_held_deliveries() -> None:
    from _model import Contender, peak_ratio

    own, floor = Contender("cykafka", "held", "a:b"), Contender("C", "floor", "a:b")
    messages = 1_000_000
    peak_kb = 100 * 1024 + 16 * messages / 1024  # 100 MB and the deliveries
    rows = {
        own.name: [result(messages=messages, peak_rss_kb=peak_kb, start_rss_kb=50 * 1024)],
        floor.name: [result(messages=messages, peak_rss_kb=100 * 1024, start_rss_kb=0)],
    }

    assert peak_ratio(own, floor, 1.1, held=16).values(rows) == pytest.approx([1.0])
    assert peak_ratio(own, floor, 1.1).values(rows)[0] > 1.1
    growth = peak_ratio(own, floor, 1.1, held=16, growth=True)
    assert growth.values(rows) == pytest.approx([0.5])
    assert not growth.judged


def test_cpu_above_is_the_cost_per_message_beyond_a_multiple_of_the_floor() -> None:
    from _model import Contender, cpu_above

    own, floor = Contender("cykafka", "own", "a:b"), Contender("C", "floor", "a:b")
    rows = {own.name: [result(cpu_us=2.0)], floor.name: [result(cpu_us=1.25)]}

    assert cpu_above(own, floor, 1.4, 0.6).values(rows) == pytest.approx([0.25])


def test_every_case_names_loops_and_programs_that_exist() -> None:
    from _floor import PROGRAMS
    from _suite import KINDS

    for kind in KINDS:
        assert kind.subject.client == "cykafka"
        names = [contender.name for contender in kind.contenders]
        assert len(set(names)) == len(names), kind.name
        assert {kind.floor.name, kind.peer_floor.name} <= set(names), kind.name
        for target in kind.targets:
            assert {contender.name for contender in target.needs} <= set(names), kind.name
        for contender in kind.contenders:
            file, function = contender.loop.split(":")
            if contender.in_c:
                assert file in PROGRAMS
                source = (BENCHMARKS / "floor" / f"{file}.c").read_text()
                assert function in source or function.split("_")[0] in source
            else:
                source = (BENCHMARKS / "clients" / f"{file}.py").read_text()
                assert f"def {function}(args: Arguments)" in source, contender.loop


def plan_of(name: str, share: float = 1.0, **shape: Any) -> Any:
    from _model import Case, Contender, Shape
    from _runner import Amounts, plan
    from _suite import KINDS

    kind = next(kind for kind in KINDS if kind.name == name)
    case = Case(kind, Shape(**{"value_size": 100, "partitions": 16, **shape}))
    amounts = Amounts(1_000_000, 3_000, 10_000_000, 2**22)
    return plan(case, Contender("aiokafka", "send", "a:b", share), 64, amounts)


def test_slow_client_does_whole_batches_of_its_share() -> None:
    assert plan_of("publish", share=0.033).messages == 30_000
    assert plan_of("publish", share=0.0001).messages == 10_000


def test_slow_client_does_its_share_of_the_exchanges() -> None:
    assert plan_of("flush").messages == 3_000
    assert plan_of("flush", share=0.1).messages == 300


def test_larger_records_are_fewer() -> None:
    assert plan_of("publish", value_size=10_000).messages == 30_000


def test_slow_reader_reads_whole_partitions() -> None:
    whole, part = (
        plan_of("consume_batch", partitions=64),
        plan_of("consume_batch", share=0.25, partitions=64),
    )

    assert (whole.partitions, part.partitions) == (64, 16)
    assert whole.messages == 4 * part.messages


def test_shape_reads_so_many_times_the_bytes() -> None:
    once, more = plan_of("aio_batches"), plan_of("aio_batches", times=2.5)

    assert more.messages == pytest.approx(2.5 * once.messages, rel=0.001)


def test_written_report_is_read_back(tmp_path: Path) -> None:
    from _model import Case
    from _report import Run, run_lines
    from _suite import KINDS

    kind = next(kind for kind in KINDS if kind.name == "publish")
    case = Case(kind, kind.shapes[0])
    rows = {c.name: [result(cpu_us=1.0 + 0.1 * i)] for i, c in enumerate(kind.contenders)}
    rows["aiokafka send"] = []
    missing = {case.name: {"aiokafka send": "not installed"}}
    run = Run("mock", {"broker": "mock"}, 1, [case], {case.name: rows}, missing)

    run.write(tmp_path / "run.json")
    lines = run_lines(run)

    assert run_lines(Run.read(tmp_path / "run.json")) == lines
    assert "  aiokafka send: not installed" in lines
    assert run.complete


def test_previous_build_is_compared_and_read_back(tmp_path: Path) -> None:
    from _model import Case, with_before
    from _report import Run, run_lines
    from _suite import KINDS

    kind = with_before(next(kind for kind in KINDS if kind.name == "poll"))
    case = Case(kind, kind.shapes[0])
    rows = {c.name: [result()] for c in kind.contenders}
    rows["cykafka (before) poll"] = [result(cpu_us=0.8)]
    run = Run("mock", {"broker": "mock"}, 1, [case], {case.name: rows}, {case.name: {}})

    run.write(tmp_path / "run.json")
    lines = run_lines(run)

    line = next(line for line in lines if "CPU to cykafka (before) poll" in line)
    assert "1.25" in line
    assert "MISSED" in line
    assert run_lines(Run.read(tmp_path / "run.json")) == lines


def test_run_without_the_subject_is_not_complete() -> None:
    from _model import Case
    from _report import Run, run_lines
    from _suite import KINDS

    kind = next(kind for kind in KINDS if kind.name == "publish")
    case = Case(kind, kind.shapes[0])
    rows = {c.name: [result()] for c in kind.contenders}
    rows[kind.subject.name] = []
    missing = {case.name: {kind.subject.name: "failed: it broke"}}
    run = Run("mock", {"broker": "mock"}, 1, [case], {case.name: rows}, missing)

    assert not run.complete
    assert "not judged: cykafka publish: failed: it broke" in "\n".join(run_lines(run))


def spark_run(**rates: float) -> Any:
    """A run of the case `read` with one round each, from thousand rows/s by contender."""
    from _spark_report import SparkRun
    from _spark_suite import CASES

    case = next(case for case in CASES if case.name == "read")
    rows = {
        item.name: [{"rows": 1000 * rates[item.name], "wall": 1.0, "cpu": 1.0}]
        if item.name in rates
        else []
        for item in case.contenders
    }
    return SparkRun({}, 1, [case], {"read": rows}, {"read": {}})


@pytest.mark.parametrize(("rate", "result"), [(2100, "met"), (1900, "MISSED")])
def test_spark_target_is_a_rate_at_least(rate: float, result: str) -> None:
    run = spark_run(**{"cykafka": rate, "JVM connector": 1000})

    [(target, figure), _] = run.judged(run.cases[0])
    assert figure.median == rate / 1000
    assert target.verdict(figure) == result


def test_spark_target_without_results_is_not_judged() -> None:
    run = spark_run(cykafka=1)

    assert run.judged(run.cases[0])[0][1] is None


def test_spark_record_is_read_back(tmp_path: Path) -> None:
    run = spark_run(**{"cykafka": 2000, "JVM connector": 1000})
    run.write(tmp_path / "spark.json")

    from _spark_report import run_lines

    assert run_lines(type(run).read(tmp_path / "spark.json")) == run_lines(run)


@pytest.mark.parametrize("kind", ["batch", "micro-batch"])
def test_planning_plans_the_existing_offsets(kind: str) -> None:
    pytest.importorskip("pyarrow")
    import _spark_plan

    result = _spark_plan.plan_ms(kind, 100)
    assert result["tasks"] >= 50
    assert result["plan_ms"] > 0
