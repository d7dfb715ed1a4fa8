"""The tables, the verdicts, and the record of a run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from _figures import LATENCIES, Result, Spread, column, overheads, ratios, verdict
from _model import (
    BEFORE,
    SAME,
    SUBJECT,
    Case,
    Contender,
    Kind,
    Rows,
    Shape,
    Target,
    with_before,
    with_same_library,
)
from _suite import KINDS

LATENCY_TITLES = ("p50 us", "p99 us", "p99.9 us")


@dataclass(frozen=True)
class Run:
    """All measurements on one broker.

    Attributes
    ----------
    about : dict of str to str
        The head of the report: machine, versions, broker and so on.
    rows : dict of str to Rows
        Results by case.
    missing : dict of str to dict of str to str
        By case and contender: the reason of missing results.
    """

    broker: str
    about: dict[str, str]
    rounds: int
    cases: list[Case]
    rows: dict[str, Rows]
    missing: dict[str, dict[str, str]]

    @property
    def complete(self) -> bool:
        """Whether the subject and the C programs completed all cases."""
        return not any(
            contender.name in self.missing[case.name]
            for case in self.cases
            for contender in case.kind.contenders
            if contender.client == SUBJECT or contender == case.kind.floor
        )

    def write(self, path: Path) -> None:
        cases = [
            {
                "name": case.name,
                "kind": case.kind.name,
                "shape": asdict(case.shape),
                "same_library": any(c.client == SAME for c in case.kind.contenders),
                "before": any(c.client == BEFORE for c in case.kind.contenders),
                "verdicts": [judged.record() for judged in judge(case, self)],
                "missing": self.missing[case.name],
                "rows": self.rows[case.name],
            }
            for case in self.cases
        ]
        record = {"broker": self.broker, "about": self.about, "rounds": self.rounds}
        path.write_text(json.dumps({**record, "cases": cases}, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Run:
        """Read a record of :meth:`write`. The targets are the current ones."""
        record = json.loads(path.read_text())
        kinds = {kind.name: kind for kind in KINDS}

        def kind_of(case: dict[str, Any]) -> Kind:
            kind = kinds[case["kind"]]
            kind = with_same_library(kind) if case["same_library"] else kind
            kind = with_before(kind) if case.get("before") else kind
            took_part = tuple(c for c in kind.contenders if c.name in case["rows"])
            return replace(kind, contenders=took_part)

        cases = [Case(kind_of(case), Shape(**case["shape"])) for case in record["cases"]]
        return cls(
            record["broker"],
            record["about"],
            record["rounds"],
            cases,
            {case["name"]: case["rows"] for case in record["cases"]},
            {case["name"]: case["missing"] for case in record["cases"]},
        )


@dataclass(frozen=True)
class Judged:
    """A target, its figure and its verdict."""

    target: Target
    figure: Spread
    result: str

    def record(self) -> dict[str, object]:
        figure = {k: None if math.isnan(v) else v for k, v in asdict(self.figure).items()}
        target = self.target
        return {"figure": target.text, "limit": target.limit, **figure, "result": self.result}


def judge(case: Case, run: Run) -> list[Judged]:
    rows, missing = run.rows[case.name], run.missing[case.name]
    judged = []
    for target in case.kind.targets:
        lacking = [contender.name for contender in target.needs if not rows.get(contender.name)]
        if lacking:
            figure = Spread.of([])
            why = missing.get(lacking[0], "").splitlines() or ["not measured"]
            result = f"not judged: {lacking[0]}: {why[0]}"
        else:
            figure = Spread.of(target.values(rows))
            result = verdict(figure, target.limit) if target.judged else "not judged"
        judged.append(Judged(target, figure, result))
    return judged


def spread(value: Spread, digits: int = 2) -> str:
    if math.isnan(value.median):
        return "-"
    return f"{value.median:.{digits}f} ({value.low:.{digits}f}..{value.high:.{digits}f})"


def format_rows(rows: list[tuple[str, ...]], left: int = 1) -> list[str]:
    """Align columns; the first ``left`` to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows if i < len(row)) for i in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def case_row(case: Case, contender: Contender, rows: Rows) -> tuple[str, ...]:
    """A contender's line in a case's table."""
    results = rows[contender.name]
    # Below an overhead stands the C program on the same librdkafka; C is compared with C.
    above = case.kind.floor if contender.in_c else case.kind.floor_of(contender)
    floor = rows.get(above.name, [])
    subject = rows[case.kind.subject.name]
    cpu = column(results, "cpu_us")

    def against(compute: Any, own: list[Result], other: list[Result]) -> str:
        return spread(Spread.of(compute(own, other))) if own and other else "-"

    def cpu_ratio(own: list[Result], other: list[Result]) -> list[float]:
        return ratios(column(own, "cpu_us"), column(other, "cpu_us"))

    is_subject = contender == case.kind.subject
    row = (
        contender.name,
        spread(Spread.of(cpu)),
        "" if contender.in_c else against(overheads, results, floor),
        "" if contender == case.kind.floor else against(cpu_ratio, results, floor),
        "" if is_subject else against(cpu_ratio, subject, results),
        f"{Spread.of(r['messages'] / r['wall'] for r in results).median:,.0f}",
        f"{Spread.of(column(results, 'peak_rss_kb')).median / 1024:,.0f}",
        f"{results[0]['messages']:,.0f}",
    )
    if case.kind.measure == "exchanges":
        row += tuple(spread(Spread.of(column(results, key)), 0) for key in LATENCIES)
    return row


def case_lines(case: Case, run: Run) -> list[str]:
    """One case's table and targets."""
    rows, missing = run.rows[case.name], run.missing[case.name]
    header: tuple[str, ...] = (
        *("", "CPU us/message", "above the floor", "to C", f"{case.kind.subject.client} to it"),
        *("messages/s", "peak MB", "messages"),
    )
    if case.kind.measure == "exchanges":
        header += LATENCY_TITLES
    measured = [c for c in case.kind.contenders if rows[c.name]]
    lines = ["", f"{case.name}: {case.kind.title}"]
    lines += format_rows([header, *(case_row(case, c, rows) for c in measured)])
    lines += [f"  {c.name}: {missing[c.name]}" for c in case.kind.contenders if c.name in missing]
    for judged in judge(case, run):
        target, figure = judged.target, judged.figure
        line = f"  {target.text}: {spread(figure, target.digits)}{target.unit}"
        if target.judged:
            line += f", target at most {target.limit:g}{target.unit}: {judged.result}"
        lines.append(line)
    return lines


def run_lines(run: Run) -> list[str]:
    """The whole report of a run."""
    lines = [f"{what}: {value}" for what, value in run.about.items()]
    lines.append(
        f"{run.rounds} rounds; median (lowest..highest) of the rounds; ratios and differences are "
        f"paired by round; CPU is user and system time of the client process"
    )
    for case in run.cases:
        lines += case_lines(case, run)
    summary: list[tuple[str, ...]] = [("case", "figure", "measured", "target", "")]
    for case in run.cases:
        for judged in judge(case, run):
            if judged.target.judged:
                unit, digits = judged.target.unit, judged.target.digits
                summary.append(
                    (
                        case.name,
                        judged.target.text,
                        spread(judged.figure, digits) + unit,
                        f"{judged.target.limit:g}{unit}",
                        judged.result,
                    )
                )
    return [*lines, "", f"targets on {run.about['broker']}", *format_rows(summary, left=5)]
