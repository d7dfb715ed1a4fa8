"""Measure cykafka in Spark beside Spark's own Kafka connector, on one broker.

Spark sessions run in separate processes: two cores with and without Unix domain sockets, and one
core. One session works at a time, in interleaved rounds. This prints a table for each case and
whether cykafka meets its targets. It writes a record and a chart to benchmarks/results.

    python benchmarks/bench_spark.py                     everything
    python benchmarks/bench_spark.py --quick             a short look
    python benchmarks/bench_spark.py --cases read sink --rows 1000000 --rounds 3
    python benchmarks/bench_spark.py --from benchmarks/results/spark.json --chart docs/spark.svg
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack
from pathlib import Path

from _brokers import RealBroker, real_broker
from _floor import BenchmarkError
from _machine import describe_machine, load_before, show_progress
from _spark_report import SparkRun, run_lines
from _spark_runner import Measured, Sessions, fill, run_rounds
from _spark_suite import CASES, STREAM_BATCHES, Place, partitions_of
from cykafka.testing import NoBrokerError

RESULTS = Path(__file__).parent / "results"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, metavar="CASE", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument(
        "--rows", type=int, default=4_000_000, help="rows to read or write at once (%(default)s)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="2 rounds of fewer rows, without the case `partitions`; not for verdicts",
    )
    parser.add_argument(
        "--bootstrap-servers",
        help="a running cluster; the benchmark creates and deletes topics there",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        metavar="FOLDER",
        help="the folder for spark.json, .txt, .svg and .png (%(default)s)",
    )
    parser.add_argument("--chart", type=Path, help="also write the chart here (.svg or .png)")
    parser.add_argument(
        "--from",
        dest="record",
        type=Path,
        metavar="JSON",
        help="do not measure; write table and chart of an earlier run",
    )
    args = parser.parse_args()
    if args.quick:
        args.rounds = min(args.rounds, 2)
        args.rows = min(args.rows, 400_000)
    if args.cases is None:
        args.cases = [case.name for case in CASES if case.quick or not args.quick]
    if min(args.rounds, args.rows) <= 0:
        parser.error("all numbers must be positive")
    return args


def describe(broker: RealBroker, versions: dict[str, str], rows: int) -> dict[str, str]:
    machine = describe_machine(os.getloadavg()[0])
    return {
        "broker": broker.description,
        **machine,
        "CPU": f"{machine['CPU']}, shared with the broker",
        "rows": f"{rows:,}, keys of 8 and values of 100 bytes",
        **versions,
    }


def measure(args: argparse.Namespace) -> SparkRun:
    cases = [case for case in CASES if case.name in args.cases]
    load_before()
    with ExitStack() as stack:
        broker = stack.enter_context(real_broker(args.bootstrap_servers))
        show_progress("starting Spark")
        names = {contender.session for case in cases for contender in case.contenders}
        sessions = stack.enter_context(Sessions(names))
        about = describe(broker, sessions.versions, args.rows)
        batches = 15 if args.quick else STREAM_BATCHES
        prefix = f"bench-spark-{os.getpid()}"
        counts = partitions_of(cases)
        place = Place(
            broker.bootstrap_servers,
            {count: f"{prefix}-{count}" for count in counts},
            f"{prefix}-stream",
            args.rows,
            batches,
        )
        for count, topic in place.topics.items():
            show_progress(f"filling a topic of {count} partitions")
            fill(broker, topic, count, args.rows)
        if any(case.name in ("micro_batch", "actions") for case in cases):
            fill(broker, place.stream_topic, 1, 100_000)
        args.output.mkdir(parents=True, exist_ok=True)

        def keep(measured: Measured) -> None:
            """Write the results so far, in case the run is interrupted."""
            so_far = SparkRun(about, args.rounds, cases, measured.rows, measured.missing)
            so_far.write(args.output / "spark.json")

        measured = run_rounds(cases, sessions, broker, place, args.rounds, show_progress, keep)
        show_progress("")
    return SparkRun(about, args.rounds, cases, measured.rows, measured.missing)


def save(run: SparkRun, folder: Path, chart: Path | None) -> None:
    """Write the record, the tables and the chart of a run. Prints the tables."""
    from _spark_charts import draw_run

    folder.mkdir(parents=True, exist_ok=True)
    run.write(folder / "spark.json")
    text = "\n".join(run_lines(run))
    (folder / "spark.txt").write_text(text + "\n")
    print(text + "\n", flush=True)
    for path in (folder / "spark.svg", folder / "spark.png", *([chart] if chart else [])):
        draw_run(run, path)
    print(f"written: {folder}/spark.json, .txt, .svg, .png", file=sys.stderr)


def main() -> None:
    args = parse_arguments()
    run = SparkRun.read(args.record) if args.record else measure(args)
    save(run, args.output, args.chart)
    if not run.complete:
        sys.exit("bench_spark: a contender failed in a case; see above")


if __name__ == "__main__":
    try:
        main()
    except (BenchmarkError, NoBrokerError) as error:
        sys.exit(f"bench_spark: {error}")
