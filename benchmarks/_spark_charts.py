"""The chart of a Spark benchmark run: bars by case, lines over the number of partitions."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from _charts import FAINT, INK, matplotlib
from _figures import Spread
from _spark_report import SparkRun
from _spark_suite import JVM, ONE, OURS, Case

assert matplotlib  # imported for the settings of _charts

# Okabe and Ito's palette, as in the other charts.
COLORS = {OURS: "#0072B2", JVM: "#E69F00", "empty": "#999999", "spark": "#999999"}
WIDTH, PANEL, LABELS, ROW, HEAD, GAP = 12.0, 6.0, 2.6, 0.27, 0.85, 0.75
CURVE_ROWS = 7


def draw_run(run: SparkRun, path: Path) -> None:
    """Draw all cases in two columns."""
    cases = [case for case in run.cases if any(run.rows[case.name].values())]
    lines = [cases[at : at + 2] for at in range(0, len(cases), 2)]
    places = [
        max(CURVE_ROWS if case.curve else len(case.contenders) for case in line) for line in lines
    ]
    height = HEAD + sum(GAP + ROW * count for count in places) + 0.3
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    top = height - HEAD
    for line, count in zip(lines, places, strict=True):
        bottom = top - GAP - ROW * count
        for column, case in enumerate(line):
            labels = 0.7 if case.curve else LABELS
            box = (
                (column * PANEL + labels) / WIDTH,
                (bottom + 0.25) / height,
                (PANEL - labels - 0.45) / WIDTH,
                ROW * count / height,
            )
            axes = figure.add_axes(box)
            (draw_curves if case.curve else draw_bars)(axes, case, run)
            # Start at the left edge of the labels, which leaves room for long names.
            left = -72 * (labels - 0.1)
            for text, up, style in (
                (case.name, 16, {"fontsize": 9.5, "fontweight": "bold", "color": INK}),
                (f"{case.title}  [{case.unit}]", 5, {"fontsize": 7.5, "color": FAINT}),
            ):
                axes.annotate(
                    text,
                    (0, 1),
                    xytext=(left, up),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    annotation_clip=False,
                    **style,
                )
        top = bottom
    about = run.about
    title = "Kafka in Spark: cykafka beside Spark's own connector"
    figure.text(0.1 / WIDTH, 1 - 0.3 / height, title, fontsize=13, fontweight="bold", color=INK)
    for number, text in enumerate(
        (
            f"Spark {about['Spark']}, local[2]; {about['JVM connector']}; {about['broker']}; "
            f"{about['CPU']}; Python {about['Python']}",
            f"{about['rows']}; medians of {run.rounds} rounds; whiskers: lowest to highest round; "
            "cykafka by Unix domain sockets unless the name says TCP",
        )
    ):
        place = 1 - (0.5 + 0.16 * number) / height
        figure.text(0.1 / WIDTH, place, text, fontsize=8, color=FAINT)
    metadata = {"Date": None} if path.suffix == ".svg" else None
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata=metadata)


def bare(axes: Axes) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(labelsize=8, labelcolor=INK, color=FAINT)


def draw_bars(axes: Axes, case: Case, run: SparkRun) -> None:
    values = run.values(case)
    shown = [each for each in case.contenders if values[each.name]]
    bare(axes)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    axes.set_ylim(len(case.contenders) - 0.45, -0.55)
    figures = [Spread.of(values[each.name]) for each in shown]
    axes.set_xlim(0, max(figure.high for figure in figures) * 1.15)
    for place, (each, figure) in enumerate(zip(shown, figures, strict=True)):
        axes.barh(place, figure.median, height=0.66, color=COLORS[each.source])
        axes.plot([figure.low, figure.high], [place, place], color=INK, linewidth=0.9)
        axes.annotate(
            f"{figure.median:,.0f}",
            (figure.high, place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=INK,
        )
    axes.set_yticks(range(len(shown)), [each.name for each in shown])
    axes.tick_params(axis="y", length=0)


def draw_curves(axes: Axes, case: Case, run: SparkRun) -> None:
    """Draw lines. A contender's name is its line's name and the number of partitions."""
    values = run.values(case)
    curves: dict[str, list[tuple[int, Spread]]] = defaultdict(list)
    styles = {}
    for each in case.contenders:
        if values[each.name]:
            name, _, count = each.name.rpartition(", ")
            curves[name].append((int(count), Spread.of(values[each.name])))
            styles[name] = (COLORS[each.source], "--" if each.session == ONE else "-")
    bare(axes)
    axes.set_xscale("log")
    if case.unit == "ms":
        axes.set_yscale("log")
    for name, points in curves.items():
        color, style = styles[name]
        counts = [count for count, _ in points]
        medians = [figure.median for _, figure in points]
        axes.plot(counts, medians, style, color=color, marker="o", markersize=4, label=name)
        for count, figure in points:
            axes.plot([count, count], [figure.low, figure.high], color=color, linewidth=0.9)
    counts = sorted({count for points in curves.values() for count, _ in points})
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.set_xticks([], minor=True)
    if case.unit != "ms":
        axes.set_ylim(bottom=0)
    axes.legend(fontsize=7.5, frameon=False)
