"""Measure the cost of a message with cykafka, its peers, and C programs on librdkafka.

Every contender of every case runs in a separate process, in interleaved rounds on one broker. This
prints a table for each case and whether cykafka meets its targets. It writes a record and charts
to benchmarks/results. README.md describes the method, the cases and the targets.

    python benchmarks/bench_client.py                          everything, on the mock and on Kafka
    python benchmarks/bench_client.py --quick --broker mock    a short look, two minutes
    python benchmarks/bench_client.py --cases publish consume_batch --sizes 100 1000
    python benchmarks/bench_client.py --cases memory --memory-messages 2000000 --rounds 3
    python benchmarks/bench_client.py --from FOLDER/real.json --chart docs/benchmark.svg
    python benchmarks/bench_client.py --subject confluent_kafka    the noise of the method
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from _brokers import Broker, MockBroker, real_broker
from _charts import draw_headlines, draw_run
from _floor import BenchmarkError, Library, build, environment_with, find_headers
from _machine import describe_machine, load_before, show_progress
from _model import (
    BEFORE,
    BROKERS,
    C_PEER,
    MODULES,
    PEER,
    SAME,
    SUBJECT,
    C,
    Case,
    Kind,
    Shape,
    with_before,
    with_same_library,
)
from _report import Run, run_lines
from _runner import Amounts, Client, find_clients, preload, preloaded, run_rounds
from _suite import CONSUMED, KINDS, MANY

RESULTS = Path(__file__).parent / "results"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [kind.name for kind in KINDS]
    what = parser.add_argument_group("what to measure")
    what.add_argument(
        "--cases", nargs="+", choices=names, default=names, metavar="CASE", help=", ".join(names)
    )
    what.add_argument(
        "--sizes", nargs="+", type=int, metavar="BYTES", help="value sizes, instead of the cases'"
    )
    what.add_argument(
        "--partitions",
        nargs="+",
        choices=("one", "many"),
        help=f"instead of the cases'; many: {MANY} to publish to, {CONSUMED} to read",
    )
    what.add_argument(
        "--keyed",
        action="store_true",
        help="read only records with a key and two headers",
    )
    peers = list(MODULES)[1:]
    what.add_argument(
        "--without",
        nargs="+",
        choices=peers,
        default=[],
        metavar="PEER",
        help=f"leave out peers: {', '.join(peers)}",
    )
    what.add_argument("--list", action="store_true", help="list the cases and targets, and exit")
    what.add_argument("--subject", default=SUBJECT, help="the module to judge (%(default)s)")
    what.add_argument(
        "--same-library",
        action="store_true",
        help="also run the subject on confluent_kafka's librdkafka",
    )
    what.add_argument(
        "--before",
        type=Path,
        metavar="FOLDER",
        help="also run the cykafka installed by `pip install --target FOLDER`, and compare",
    )
    amount = parser.add_argument_group("how much to measure")
    amount.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    amount.add_argument(
        "--messages",
        type=int,
        default=1_000_000,
        help="messages of a publishing process, at most 256 MB (%(default)s)",
    )
    amount.add_argument(
        "--exchanges",
        type=int,
        default=3_000,
        help="messages in the cases that send one at a time (%(default)s)",
    )
    amount.add_argument(
        "--memory-messages",
        type=int,
        default=10_000_000,
        help="messages in the memory case (%(default)s)",
    )
    amount.add_argument(
        "--partition-mb",
        type=float,
        default=4,
        help=f"MB in each of {CONSUMED} partitions to read (%(default)s; the mock keeps 5)",
    )
    amount.add_argument(
        "--quick",
        action="store_true",
        help="2 rounds of less work, only the first shape of each case; not for verdicts",
    )
    where = parser.add_argument_group("where to measure")
    where.add_argument(
        "--broker",
        choices=(*BROKERS, "both"),
        default="both",
        help="librdkafka's mock cluster, or a node of Apache Kafka started for the run "
        "(%(default)s)",
    )
    where.add_argument(
        "--bootstrap-servers",
        help="a running cluster instead; the benchmark creates and deletes topics there",
    )
    where.add_argument(
        "--librdkafka-prefix",
        type=Path,
        help="the folder of include/librdkafka; default: $CYKAFKA_LIBRDKAFKA_PREFIX, else the "
        "one that vendor/librdkafka.py finds",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--output",
        type=Path,
        default=RESULTS,
        metavar="FOLDER",
        help="the folder for BROKER.json, .txt, .svg and .png (%(default)s)",
    )
    output.add_argument(
        "--chart", type=Path, help="also write the chart of the README's cases (.svg or .png)"
    )
    output.add_argument(
        "--from",
        dest="records",
        nargs="+",
        type=Path,
        metavar="JSON",
        help="do not measure; write tables and charts of earlier runs",
    )
    args = parser.parse_args()
    if args.quick:
        args.rounds = min(args.rounds, 2)
        args.messages = min(args.messages, 100_000)
        args.exchanges = min(args.exchanges, 500)
        args.memory_messages = min(args.memory_messages, 500_000)
        args.partition_mb = min(args.partition_mb, 0.5)
    numbers = (args.rounds, args.messages, args.exchanges, args.memory_messages, args.partition_mb)
    if min(*numbers, *(args.sizes or [1])) <= 0:
        parser.error("all numbers must be positive")
    return args


def shapes_of(kind: Kind, args: argparse.Namespace) -> list[Shape]:
    """The shapes of records for a kind."""
    shapes = list(kind.shapes[:1] if args.quick else kind.shapes)
    many = CONSUMED if kind.reads else MANY
    if args.partitions and kind.measure != "exchanges":
        counts = [1 if which == "one" else many for which in args.partitions]
        shapes = [replace(shape, partitions=n) for shape in shapes for n in counts]
    if args.sizes:
        shapes = [replace(shape, value_size=size) for shape in shapes for size in args.sizes]
    if args.keyed and kind.reads:
        shapes = [replace(shape, keyed=True) for shape in shapes]
    return list(dict.fromkeys(shapes))


def choose_cases(args: argparse.Namespace) -> list[Case]:
    """The requested cases with their contenders."""
    cases = []
    for kind in KINDS:
        if kind.name not in args.cases:
            continue
        if args.subject != SUBJECT and kind.subject.loop.startswith(("cykafka_", "pip_services")):
            print(f"{kind.name}: skipped: {args.subject} lacks its API", file=sys.stderr)
            continue
        if args.same_library:
            kind = with_same_library(kind)
        if args.before:
            kind = with_before(kind)
        contenders = tuple(c for c in kind.contenders if c.client not in args.without)
        kind = replace(kind, contenders=contenders)
        cases += [Case(kind, shape) for shape in shapes_of(kind, args)]
    return cases


def prepare_clients(args: argparse.Namespace, cases: list[Case]) -> dict[str, Client]:
    """Find the clients of the cases, and build the C programs."""
    include = find_headers(args.librdkafka_prefix)
    subject = Library.of(args.subject)
    floors = {C: build(subject, include)}
    peer: Library | str
    peer = "not installed"
    if importlib.util.find_spec(MODULES[PEER]) is not None:
        peer = Library.of(MODULES[PEER])
        floors[C_PEER] = build(peer, include)
    names = {contender.client for case in cases for contender in case.kind.contenders}
    clients = find_clients(names - {SAME, BEFORE}, args.subject, subject, floors, peer)
    if isinstance(peer, Library):
        clients[SAME] = replace(clients[SUBJECT], library=peer, environment=environment_with(peer))
    else:
        clients[SAME] = Client(missing=peer)
    if args.before:
        clients[BEFORE] = before_client(args.before, clients[SUBJECT])
    return clients


def before_client(folder: Path, subject: Client) -> Client:
    """The subject's build in a folder."""
    environment = {"PYTHONPATH": str(folder.resolve())}
    library = Library.of(subject.module, environment)
    if folder.resolve() not in library.path.parents:
        raise BenchmarkError(
            f"--before {folder}: expected {subject.module} in this folder, but librdkafka is "
            f"{library.path}; run pip install --target {folder} WHEEL"
        )
    return replace(
        subject,
        version=f"{library.module_version} on librdkafka {library.version}, {folder}",
        library=library,
        environment=environment,
    )


def describe(clients: dict[str, Client], broker: Broker, load: float) -> dict[str, str]:
    about = {"broker": broker.description, **describe_machine(load)}
    for name, client in clients.items():
        if name != SAME:
            about[name] = client.missing or client.version
    module = clients[SUBJECT].module
    if module != SUBJECT:
        about[SUBJECT] = f"replaced by {module} {clients[SUBJECT].version}"
    return about


def measure(
    args: argparse.Namespace, cases: list[Case], clients: dict[str, Client], broker: Broker
) -> Run:
    """Run all rounds on one broker."""
    load = load_before()
    programs = clients[C].programs
    assert programs is not None
    amounts = Amounts(
        args.messages, args.exchanges, args.memory_messages, args.partition_mb * 2**20
    )
    chosen = [case for case in cases if broker.name in case.kind.brokers]
    for case in cases:
        if case not in chosen:
            print(f"{case.name}: does not run on the {broker.name} broker", file=sys.stderr)
    chosen = [case for case in chosen if not too_large(case, broker, amounts)]
    prefix = f"bench-{os.getpid()}"
    topics = {case.name: f"{prefix}-{number}" for number, case in enumerate(chosen)}
    filled: dict[Shape, str] = {}
    for case in chosen:
        if case.kind.reads:
            if case.shape not in filled:
                show_progress(f"filling {broker.name}: {case.shape}")
                in_partition = preloaded(case.shape, CONSUMED, amounts)
                preload(programs, broker, topics[case.name], case.shape, in_partition)
            topics[case.name] = filled.setdefault(case.shape, topics[case.name])
    measured = run_rounds(
        chosen, clients, broker, topics, CONSUMED, amounts, args.rounds, show_progress
    )
    show_progress("")
    about = describe(clients, broker, load)
    return Run(broker.name, about, args.rounds, chosen, measured.rows, measured.missing)


def too_large(case: Case, broker: Broker, amounts: Amounts) -> bool:
    """Whether the mock would drop records of a case before they are read. Prints it."""
    in_partition = CONSUMED * amounts.partition_bytes * case.shape.times / case.shape.partitions
    if case.kind.reads and broker.name == "mock" and in_partition > 5e6:
        print(f"{case.name}: skipped: the mock keeps only 5 MB a partition", file=sys.stderr)
        return True
    return False


def list_cases() -> None:
    """Print the cases and their targets."""
    for kind in KINDS:
        where = "" if len(kind.brokers) > 1 else f" (on the {kind.brokers[0]} broker)"
        print(f"{kind.name}: {kind.title}{where}")
        print(f"    records: {'; '.join(str(shape) for shape in kind.shapes)}")
        print(f"    by: {'; '.join(contender.name for contender in kind.contenders)}")
        for target in kind.targets:
            if target.judged:
                print(f"    target: {target.text}: at most {target.limit:g}{target.unit}")


def measure_all(args: argparse.Namespace) -> list[Run]:
    cases = choose_cases(args)
    if not cases:
        raise BenchmarkError("no case to measure: all were skipped")
    clients = prepare_clients(args, cases)
    runs = []
    wanted = BROKERS if args.broker == "both" else (args.broker,)
    for name in wanted:
        opened: AbstractContextManager[Broker]
        if name == "mock":
            programs = clients[C].programs
            assert programs is not None
            opened = MockBroker(programs / "mock_broker")
        else:
            opened = real_broker(args.bootstrap_servers)
        with opened as broker:
            run = measure(args, cases, clients, broker)
        runs.append(run)
        save(run, args.output)
    return runs


def save(run: Run, folder: Path) -> None:
    """Write the record, the tables and the charts of a run. Prints the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    run.write(folder / f"{run.broker}.json")
    text = "\n".join(run_lines(run))
    (folder / f"{run.broker}.txt").write_text(text + "\n")
    print(text + "\n", flush=True)
    for suffix in ("svg", "png"):
        draw_run(run, folder / f"{run.broker}.{suffix}")
    print(f"written: {folder}/{run.broker}.json, .txt, .svg, .png", file=sys.stderr)


def main() -> None:
    args = parse_arguments()
    if args.list:
        list_cases()
        return
    if args.records:
        runs = [Run.read(path) for path in args.records]
        for run in runs:
            save(run, args.output)
    else:
        runs = measure_all(args)
    if args.chart:
        args.chart.parent.mkdir(parents=True, exist_ok=True)
        draw_headlines(runs[-1], args.chart)
        print(f"written: {args.chart}", file=sys.stderr)
    if not all(run.complete for run in runs):
        sys.exit("bench_client: cykafka or the C program failed in a case; see above")


if __name__ == "__main__":
    try:
        main()
    except BenchmarkError as error:
        sys.exit(f"bench_client: {error}")
