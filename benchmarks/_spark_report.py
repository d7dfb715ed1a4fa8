"""Tables, verdicts and the record of a Spark benchmark run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from _figures import Result, Spread
from _report import format_rows, spread
from _spark_suite import CASES, WARM_UPS, Case, Contender, Target


@dataclass(frozen=True)
class SparkRun:
    """All measurements of a run.

    Attributes
    ----------
    about : dict of str to str
        The head of the report: machine, versions and so on.
    rows : dict of str to dict of str to list of Result
        Results by case and contender.
    missing : dict of str to dict of str to str
        By case and contender: the reason of missing results.
    """

    about: dict[str, str]
    rounds: int
    cases: list[Case]
    rows: dict[str, dict[str, list[Result]]]
    missing: dict[str, dict[str, str]]

    @property
    def complete(self) -> bool:
        """Whether every contender completed all its cases."""
        return not any(self.missing.values())

    def values(self, case: Case) -> dict[str, list[float]]:
        """The figures of a case, by contender."""
        rows = self.rows[case.name]
        return {
            each.name: [case.value(row) for row in rows[each.name]] for each in case.contenders
        }

    def judged(self, case: Case) -> list[tuple[Target, Spread | None]]:
        """The targets and their figures; None if a contender has no results."""
        values = self.values(case)
        return [
            (
                target,
                target.figure(values) if values[target.own] and values[target.other] else None,
            )
            for target in case.targets
        ]

    def write(self, path: Path) -> None:
        cases = [
            {
                "name": case.name,
                "unit": case.unit,
                "medians": {
                    name: Spread.of(values).median
                    for name, values in self.values(case).items()
                    if values
                },
                "figures": {
                    target.text: None if figure is None else asdict(figure)
                    for target, figure in self.judged(case)
                },
                "missing": self.missing[case.name],
                "rows": self.rows[case.name],
            }
            for case in self.cases
        ]
        record = {"about": self.about, "rounds": self.rounds, "cases": cases}
        path.write_text(json.dumps(record, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> SparkRun:
        """Read a record of :meth:`write`. The targets are the current ones."""
        record = json.loads(path.read_text())
        by_name = {case["name"]: case for case in record["cases"]}
        return cls(
            record["about"],
            record["rounds"],
            [case for case in CASES if case.name in by_name],
            {name: case["rows"] for name, case in by_name.items()},
            {name: case["missing"] for name, case in by_name.items()},
        )


def contender_row(case: Case, contender: Contender, results: list[Result]) -> tuple[str, ...]:
    figure = Spread.of(case.value(result) for result in results)
    cells = (contender.name, contender.session, spread(figure, 0 if figure.median > 20 else 1))
    if case.unit == "ms":
        return (*cells, "", "")
    cpu = Spread.of(result["cpu"] * 1e6 / result["rows"] for result in results)
    rest = [result["others"] * 1e6 / result["rows"] for result in results if "others" in result]
    return (*cells, spread(cpu), spread(Spread.of(rest)) if rest else "")


def case_lines(case: Case, run: SparkRun) -> list[str]:
    """One case's table and targets."""
    rows, missing = run.rows[case.name], run.missing[case.name]
    cpu = ("", "") if case.unit == "ms" else ("CPU us/row", "and of the broker")
    header = ("", "session", case.unit, *cpu)
    lines = ["", f"{case.name}: {case.title}"]
    body = [
        contender_row(case, each, rows[each.name]) for each in case.contenders if rows[each.name]
    ]
    lines += format_rows([header, *body], left=2)
    lines += [f"  {name}: {why}" for name, why in missing.items()]
    for target, figure in run.judged(case):
        if figure is None:
            lines.append(f"  {target.text}: not judged: results are missing")
            continue
        line = f"  {target.text}: {spread(figure)}{target.unit}"
        if target.judged:
            line += f", target {target.goal}: {target.verdict(figure)}"
        lines.append(line)
    return lines


def run_lines(run: SparkRun) -> list[str]:
    """The whole report of a run."""
    lines = [f"{what}: {value}" for what, value in run.about.items()]
    lines.append(
        f"{run.rounds} rounds after {WARM_UPS} warm-up rounds; median (lowest..highest); ratios "
        "and differences are paired by round; CPU is the sum of Java's and Python's"
    )
    for case in run.cases:
        lines += case_lines(case, run)
    summary: list[tuple[str, ...]] = [("case", "figure", "measured", "target", "")]
    for case in run.cases:
        for target, figure in run.judged(case):
            if target.judged and figure is not None:
                measured = spread(figure) + target.unit
                summary.append(
                    (case.name, target.text, measured, target.goal, target.verdict(figure))
                )
    return [*lines, "", "targets", *format_rows(summary, left=5)]
