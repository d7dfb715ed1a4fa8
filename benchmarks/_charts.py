"""Charts of a run: bars with the cost of a message, by client and case."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import shorten

import matplotlib

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from _figures import Spread, column
from _model import BEFORE, C_PEER, PEER, PUBLISHED, SAME, SUBJECT, C, Case, Contender, Rows
from _report import Run

# Text stays text, so the SVG is small and searchable. The salt makes the file reproducible.
matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["svg.hashsalt"] = "cykafka"
matplotlib.rcParams["font.sans-serif"] = ["DejaVu Sans", "Verdana", "Arial", "sans-serif"]

# Okabe and Ito's palette, distinguishable without color vision.
COLORS = {
    SUBJECT: "#0072B2",
    SAME: "#56B4E9",
    BEFORE: "#56B4E9",
    C: "#999999",
    C_PEER: "#999999",
    PEER: "#E69F00",
    "aiokafka": "#CC79A7",
    "kafka-python": "#009E73",
    "kafkarrow": "#D55E00",
    PUBLISHED: "#F0E442",
}
HEADLINES = (
    "publish",
    "publish_headers",
    "publish_arrow",
    "consume_batch",
    "consume_arrow",
    "publish_one",
)
INK, FAINT = "#222222", "#8a8a8a"
LOG_FROM = 8.0
"""The scale is logarithmic if the longest bar is more than this many times the shortest."""
PANEL_INCHES, LABEL_INCHES, MARGIN_INCHES = 6.6, 2.7, 0.15
HEAD_INCHES, GAP_INCHES, ROW_INCHES = 0.75, 0.72, 0.26


@dataclass(frozen=True)
class Bar:
    """A bar. The whisker spans p50 to p99 for latencies, else the lowest to the highest round."""

    contender: Contender
    figure: Spread
    whisker: tuple[float, float]


def bars_end(bars: list[Bar]) -> float:
    return max(bar.whisker[1] for bar in bars)


@dataclass(frozen=True)
class Measure:
    """The number that a panel shows for each result of a case."""

    key: str
    unit: str
    scale: float = 1.0
    digits: int = 2

    @classmethod
    def of(cls, case: Case) -> Measure:
        if case.kind.measure == "exchanges":
            return cls("p50_us", "us, p50", digits=0)
        if case.kind.measure == "memory":
            return cls("peak_rss_kb", "MB, peak", 1 / 1024, 0)
        return cls("cpu_us", "us of CPU per message")


def bars_of(case: Case, rows: Rows, measure: Measure) -> list[Bar]:
    """Bars of the clients and of the C programs on the subject's librdkafka, cheapest first."""
    bars = []
    for contender in case.kind.contenders:
        results = rows.get(contender.name)
        if results and contender.client != C_PEER:
            values = [value * measure.scale for value in column(results, measure.key)]
            figure = Spread.of(values)
            whisker = (figure.low, figure.high)
            if measure.key == "p50_us":
                whisker = (figure.median, Spread.of(column(results, "p99_us")).median)
            bars.append(Bar(contender, figure, whisker))
    return sorted(bars, key=lambda bar: bar.figure.median)


def draw_panel(axes: Axes, case: Case, run: Run, places: int) -> None:
    """Draw horizontal bars, or dots on a logarithmic scale. The dashed line is the floor."""
    rows, measure = run.rows[case.name], Measure.of(case)
    bars = bars_of(case, rows, measure)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.spines["left"].set_color(FAINT)
    axes.tick_params(axis="y", length=0, labelsize=8, labelcolor=INK)
    axes.set_ylim(places - 0.45, -0.55)
    unit = measure.unit
    if bars:
        if bars_end(bars) > LOG_FROM * min(bar.figure.low for bar in bars):
            axes.set_xscale("log")
            unit += "; logarithmic"
            least = min(bar.figure.low for bar in bars) / 1.6
            axes.set_xlim(least, (bars_end(bars) / least) ** 1.16 * least)
        else:
            axes.set_xlim(0, bars_end(bars) * 1.12)
    for place, bar in enumerate(bars):
        draw_bar(axes, place, bar, measure)
    axes.set_xticks([])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(bars)), [bar.contender.name for bar in bars])
    for label, bar in zip(axes.get_yticklabels(), bars, strict=True):
        if bar.contender.client == SUBJECT:
            label.set_fontweight("bold")
    if floor := rows.get(case.kind.floor.name):
        value = Spread.of(column(floor, measure.key)).median * measure.scale
        axes.axvline(value, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0.5)
    write_heading(axes, case, unit, [c.name for c in case.kind.contenders if not rows.get(c.name)])


def draw_bar(axes: Axes, place: int, bar: Bar, measure: Measure) -> None:
    figure, color = bar.figure, COLORS[bar.contender.client]
    if axes.get_xscale() == "log":
        start = axes.get_xlim()[0]
        axes.plot([start, figure.median], [place, place], color=color, linewidth=1.4)
        axes.plot([figure.median], [place], "o", color=color, markersize=8)
    else:
        axes.barh(place, figure.median, height=0.66, color=color)
    low, high = bar.whisker
    axes.plot([low, high], [place, place], color=INK, linewidth=0.9, solid_capstyle="butt")
    axes.annotate(
        f"{figure.median:,.{measure.digits}f}",
        (max(high, figure.median), place),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=INK,
    )


def write_heading(axes: Axes, case: Case, unit: str, absent: list[str]) -> None:
    """Write the case, its title and unit above the panel, and contenders without results below."""
    # Start at the left edge of the labels, which leaves room for long names.
    left = -72 * (LABEL_INCHES - MARGIN_INCHES)
    write = partial(
        axes.annotate,
        xycoords="axes fraction",
        textcoords="offset points",
        annotation_clip=False,
        ha="left",
    )
    above = partial(write, xy=(0.0, 1.0), va="bottom")
    above(case.name, xytext=(left, 15), fontsize=9.5, fontweight="bold", color=INK)
    above(f"{case.kind.title}  [{unit}]", xytext=(left, 4), fontsize=7.5, color=FAINT)
    shown = [name for name in absent if not name.startswith(C_PEER)]
    if shown:
        text = shorten("not measured: " + "; ".join(shown), 110, placeholder=" ...")
        write(text, xy=(0.0, 0.0), xytext=(left, -3), fontsize=7, color=FAINT, va="top")


def draw(cases: list[Case], run: Run, path: Path, title: str) -> None:
    """Draw panels in two columns. The number of bars sets a panel's height."""
    columns = min(len(cases), 2)
    lines = [cases[i : i + columns] for i in range(0, len(cases), columns)]
    places = [
        max(len(bars_of(c, run.rows[c.name], Measure.of(c))) or 1 for c in line) for line in lines
    ]
    width = PANEL_INCHES * columns
    height = HEAD_INCHES + sum(GAP_INCHES + ROW_INCHES * n for n in places)
    figure = Figure(figsize=(width, height), facecolor="white")
    top = height - HEAD_INCHES
    for line, n in zip(lines, places, strict=True):
        bottom = top - GAP_INCHES - ROW_INCHES * n
        for j, case in enumerate(line):
            left = j * PANEL_INCHES + LABEL_INCHES
            box = (
                left / width,
                (bottom + 0.16) / height,
                (PANEL_INCHES - LABEL_INCHES - 0.2) / width,
                ROW_INCHES * n / height,
            )
            draw_panel(figure.add_axes(box), case, run, n)
        top = bottom
    figure.text(0.1 / width, 1 - 0.3 / height, title, fontsize=13, fontweight="bold", color=INK)
    for number, text in enumerate(subtitle(run)):
        place = 1 - (0.5 + 0.16 * number) / height
        figure.text(0.1 / width, place, text, fontsize=8, color=FAINT)
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, dpi=110, metadata=metadata)


def subtitle(run: Run) -> list[str]:
    about = run.about
    versions = [f"{name} {about[name]}" for name in (SUBJECT, PEER) if name in about]
    return [
        f"{about['broker']}; {about['CPU']}; Python {about['Python']}; {'; '.join(versions)}",
        f"medians of {run.rounds} rounds; whiskers: lowest to highest round (latencies: p50 to "
        f"p99); dashed: the C program that cykafka is compared with",
    ]


def draw_run(run: Run, path: Path) -> None:
    """Draw all cases of a run."""
    if run.cases:
        draw(run.cases, run, path, "What a Kafka client costs, case by case")


def draw_headlines(run: Run, path: Path) -> None:
    """Draw the README's cases, with their first shape of records."""
    cases = []
    for name in HEADLINES:
        cases += [case for case in run.cases if case.kind.name == name][:1]
    if cases:
        draw(cases, run, path, "What a Kafka client costs")
