"""CPU per message of a Kafka client, above a C program that makes the same librdkafka calls.

Runs the C program, confluent_kafka and cykafka on one broker in interleaved rounds, and says
for each case whether cykafka meets its target. README.md describes the method.

    python benchmarks/bench_client.py                      the full run, five to ten minutes
    python benchmarks/bench_client.py --quick              a look, under a minute
    python benchmarks/bench_client.py --cases produce poll
    python benchmarks/bench_client.py --broker             on real Kafka
    python benchmarks/bench_client.py --subject confluent_kafka    the noise of the method
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from _cases import CHUNK
from _floor import (
    BenchmarkError,
    Library,
    MockBroker,
    RealBroker,
    build,
    environment_with,
    find_headers,
)
from _runner import (
    CASES,
    Case,
    Measured,
    Participant,
    Spread,
    Work,
    column,
    overheads,
    ratios,
    run_rounds,
    verdict,
)
from cykafka.testing import KafkaCluster

CONSUME_PARTITIONS = 64
PRODUCE_PARTITIONS = 4
RECORD_OVERHEAD = 10
"""Bytes of a record in a batch besides its value, about."""

FLOOR = "C"
PEER_FLOOR = "C (peer's)"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument(
        "--messages", type=int, default=1_000_000, help="of the produce cases (%(default)s)"
    )
    parser.add_argument(
        "--flushes", type=int, default=3_000, help="messages of the flush cases (%(default)s)"
    )
    parser.add_argument(
        "--partition-mb",
        type=float,
        default=4,
        help="preloaded in each of the 64 partitions to consume (%(default)s; the mock keeps 5)",
    )
    parser.add_argument("--value-size", type=int, default=100, help="bytes (%(default)s)")
    names = [case.name for case in CASES]
    parser.add_argument(
        "--cases", nargs="+", choices=names, default=names, metavar="CASE", help=", ".join(names)
    )
    parser.add_argument("--subject", default="cykafka", help="module judged (%(default)s)")
    parser.add_argument("--peer", default="confluent_kafka", help="compared with (%(default)s)")
    parser.add_argument(
        "--same-library",
        action="store_true",
        help="also run the subject on the peer's librdkafka (its soname must be found through "
        "LD_LIBRARY_PATH, as cykafka's is)",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--broker",
        action="store_true",
        help="a node of real Kafka, started for the run; default: a mock cluster",
    )
    where.add_argument(
        "--bootstrap-servers", help="a running cluster, where topics are created and deleted"
    )
    parser.add_argument(
        "--librdkafka-prefix",
        type=Path,
        help="where include/librdkafka is; default: $CYKAFKA_LIBRDKAFKA_PREFIX, else what "
        "vendor/librdkafka.py finds",
    )
    parser.add_argument("--json", type=Path, help="write every measurement to this file")
    parser.add_argument(
        "--quick", action="store_true", help="3 rounds of less work: a look, no judgement"
    )
    args = parser.parse_args()
    if args.quick:
        args.rounds = min(args.rounds, 3)
        args.messages = min(args.messages, 200_000)
        args.flushes = min(args.flushes, 500)
        args.partition_mb = min(args.partition_mb, 1)
    if min(args.rounds, args.messages, args.flushes, args.partition_mb, args.value_size) <= 0:
        parser.error("the numbers must be positive")
    return args


def find_participants(args: argparse.Namespace) -> list[Participant]:
    """The floor on either library, the peer and the subject; builds the C programs."""
    include = find_headers(args.librdkafka_prefix)
    subject, peer = Library.of(args.subject), Library.of(args.peer)
    participants = [
        Participant(FLOOR, subject, programs=build(subject, include)),
        Participant(PEER_FLOOR, peer, programs=build(peer, include)),
        Participant("peer", peer, module=args.peer),
        Participant("subject", subject, module=args.subject),
    ]
    if args.same_library:
        participants.append(
            Participant(
                "subject on peer's",
                peer,
                module=args.subject,
                environment=environment_with(peer),
            )
        )
    return participants


def plan_work(args: argparse.Namespace, prefix: str) -> dict[str, Work]:
    """The work of each of the topics that cases name."""
    chunks = -(-args.messages // CHUNK)
    in_partition = int(args.partition_mb * 2**20 / (args.value_size + RECORD_OVERHEAD))
    consumed = max(in_partition, 1) * CONSUME_PARTITIONS
    size = args.value_size
    return {
        "produce": Work(f"{prefix}-produce", chunks * CHUNK, size, PRODUCE_PARTITIONS),
        "consume": Work(f"{prefix}-consume", consumed, size, CONSUME_PARTITIONS),
        "flush": Work(f"{prefix}-flush", args.flushes, size, 1),
    }


def preload(programs: Path, works: dict[str, Work], bootstrap_servers: str) -> None:
    """Fill the partitions to consume, and the small topic that consumers warm up on."""
    work = works["consume"]
    for topic, messages, size, partitions in (
        (f"{work.topic}-warm", CHUNK, min(work.value_size, 100), 1),
        (work.topic, work.messages // work.partitions, work.value_size, work.partitions),
    ):
        command = [programs / "produce", "preload", topic, messages, size, partitions]
        # A long linger fills the batches: the consumers then fetch the same ones every time.
        config = [f"bootstrap.servers={bootstrap_servers}", "linger.ms=100"]
        done = subprocess.run(
            [str(word) for word in (*command, *config)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode:
            raise BenchmarkError(f"preloading {topic}: {done.stderr}")


def describe_machine(participants: list[Participant]) -> dict[str, str]:
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    machine = {
        "CPU": f"{cpu}, {os.cpu_count()} cores",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
    }
    for participant in participants:
        if participant.name in ("peer", "subject"):
            library = participant.library
            machine[participant.name] = (
                f"{library.module} {library.module_version} on librdkafka {library.version}"
            )
    return machine


# --- the table ----------------------------------------------------------------------------


def spread(value: Spread, digits: int = 2) -> str:
    if math.isnan(value.median):
        return "-"
    return f"{value.median:.{digits}f} ({value.low:.{digits}f}..{value.high:.{digits}f})"


def print_rows(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())


def print_case(case: Case, participants: list[Participant], measured: Measured) -> dict[str, str]:
    """One case's table; the verdict of each of its figures."""
    by = measured[case.name]
    floor_of = {FLOOR: FLOOR, PEER_FLOOR: PEER_FLOOR, "subject": FLOOR}
    rows: list[tuple[str, ...]] = [
        ("", "CPU us/message", "above the floor", "messages/s", "peak MB")
    ]
    latency = "p50_us" in by[FLOOR][0]
    if latency:
        rows[0] += ("p50 us", "p99 us")
    for participant in participants:
        results = by[participant.name]
        floor = by[floor_of.get(participant.name, PEER_FLOOR)]
        above = "" if participant.programs else spread(Spread.of(overheads(results, floor)))
        rate = Spread.of(r["messages"] / r["wall"] for r in results).median
        peak = Spread.of(column(results, "peak_rss_kb")).median / 1024
        row: tuple[str, ...] = (
            f"{participant.module or participant.name} {participant.library.version}",
            spread(Spread.of(column(results, "cpu_us"))),
            above,
            f"{rate:,.0f}",
            f"{peak:.0f}",
        )
        if latency:
            row += tuple(spread(Spread.of(column(results, k)), 0) for k in ("p50_us", "p99_us"))
        rows.append(row)
    print(f"\n{case.name}")
    print_rows(rows)
    verdicts = {}
    for what, judged, ratio in case_ratios(case, by):
        line = f"  {what}: {spread(ratio)}"
        if judged:
            verdicts[what] = verdict(ratio, case.target)
            line += f", target at most {case.target}: {verdicts[what]}"
        print(line)
    return verdicts


def case_ratios(
    case: Case, by: dict[str, list[dict[str, float]]]
) -> list[tuple[str, bool, Spread]]:
    """Name, whether the target is for it, and the ratio of subject to peer."""
    subject, peer = by["subject"], by["peer"]
    if not case.overhead:
        return [
            (f"{what} ratio", True, Spread.of(ratios(column(subject, key), column(peer, key))))
            for what, key in (("CPU", "cpu_us"), ("p50", "p50_us"), ("p99", "p99_us"))
        ]
    over_own = overheads(peer, by[PEER_FLOOR])
    figures = [
        (
            "overhead ratio, each above its own librdkafka",
            True,
            ratios(overheads(subject, by[FLOOR]), over_own),
        ),
        (
            "overhead ratio, both above the subject's librdkafka",
            False,
            ratios(overheads(subject, by[FLOOR]), overheads(peer, by[FLOOR])),
        ),
    ]
    if "subject on peer's" in by:
        same = overheads(by["subject on peer's"], by[PEER_FLOOR])
        figures.append(
            ("overhead ratio, both on the peer's librdkafka", False, ratios(same, over_own))
        )
    return [(what, judged, Spread.of(values)) for what, judged, values in figures]


def print_progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr)


def main() -> None:
    args = parse_arguments()
    participants = find_participants(args)
    programs = participants[0].programs
    assert programs is not None
    works = plan_work(args, f"bench-{os.getpid()}")
    topics = {work.topic: work.partitions for work in works.values()}
    topics[f"{works['consume'].topic}-warm"] = 1
    cases = [case for case in CASES if case.name in args.cases]
    load = os.getloadavg()[0]
    if load > 1:
        print(f"warning: the machine is busy (load {load:.1f}): expect noise", file=sys.stderr)
    with ExitStack() as stack:
        servers = args.bootstrap_servers
        if args.broker:
            # Tests do with less, but collecting garbage must not take turns with the clients.
            node = stack.enter_context(KafkaCluster(java_options=["-Xmx1g"]))
            servers = node.bootstrap_servers
        broker: MockBroker | RealBroker
        if servers:
            broker = RealBroker(servers, topics)
        else:
            broker = MockBroker(programs / "mock_broker", 1, topics)
        running = stack.enter_context(broker)
        if any(case.topic == "consume" for case in cases):
            print_progress("preloading the partitions to consume")
            preload(programs, works, running.bootstrap_servers)
        measured = run_rounds(
            cases,
            participants,
            works,
            running.bootstrap_servers,
            args.rounds,
            print_progress,
        )
    if sys.stderr.isatty():
        print_progress("")
        print("\r", end="", file=sys.stderr)

    machine = describe_machine(participants)
    machine["broker"] = (
        "Apache Kafka, one node"
        if args.broker
        else args.bootstrap_servers or "librdkafka's mock cluster, one broker"
    )
    machine["load before"] = f"{load:.1f}"
    for what, value in machine.items():
        print(f"{what}: {value}")
    print(
        f"{args.value_size}-byte values, {args.rounds} rounds; median (lowest..highest) of the "
        f"rounds; ratios are paired by round"
    )
    verdicts = {case.name: print_case(case, participants, measured) for case in cases}
    print()
    rows = [(name, what, result) for name, by in verdicts.items() for what, result in by.items()]
    print_rows([("case", "figure", "target"), *rows])
    if args.json:
        report = {
            "machine": machine,
            "work": {name: asdict(work) for name, work in works.items()},
            "cases": {case.name: asdict(case) for case in cases},
            "verdicts": verdicts,
            "measured": measured,
        }
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except BenchmarkError as error:
        sys.exit(f"bench_client: {error}")
