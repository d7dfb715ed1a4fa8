"""Compare `cykafka produce` and `cykafka consume` with kcat on a broker of real Kafka.

Each round runs both commands of each case one after the other, with the same file, the same topic
settings and the same properties. The order of the two changes from round to round. The output of
the readers is compared with the file.

    python benchmarks/bench_cli.py                        1 GB of lines of 100 bytes, 3 rounds
    python benchmarks/bench_cli.py --megabytes 100 --rounds 5
    python benchmarks/bench_cli.py -X queued.min.messages=1000000
"""

from __future__ import annotations

import argparse
import filecmp
import os
import random
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from _machine import describe_machine, load_before, show_progress
from cykafka.admin import AdminClient, NewTopic
from cykafka.testing import KafkaCluster

WAIT_S = 30.0
# A block of different lines that the file repeats: they are not too easy to compress.
BLOCK_LINES = 10_000
# Free the disk of deleted topics soon.
SETTINGS = {
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "5000",
}
KCAT, OURS = "kcat", "cykafka"


class Timing(NamedTuple):
    """A run of a command: wall time and CPU time in s, peak memory in MB."""

    wall: float
    cpu: float
    memory: float


class Case(NamedTuple):
    """The arguments of the two commands for the same work; TOPIC and FILE are filled in."""

    name: str
    kcat: Sequence[str]
    ours: Sequence[str]
    reads: bool
    exact: bool = True


CASES = (
    Case(
        "produce lines", ("-P", "-t", "TOPIC", "-l", "FILE"), ("produce", "TOPIC", "FILE"), False
    ),
    Case(
        "produce keys and values",
        ("-P", "-t", "TOPIC", "-K", " ", "-l", "FILE"),
        ("produce", "TOPIC", "-K", " ", "FILE"),
        False,
    ),
    Case(
        "produce lines, zstd",
        ("-P", "-t", "TOPIC", "-z", "zstd", "-l", "FILE"),
        ("produce", "TOPIC", "-z", "zstd", "FILE"),
        False,
    ),
    Case("consume values", ("-C", "-t", "TOPIC", "-e"), ("consume", "TOPIC", "-e"), True),
    Case(
        "consume by a template",
        ("-C", "-t", "TOPIC", "-e", "-f", "%s\\n"),
        ("consume", "TOPIC", "-e", "-f", "%s\\n"),
        True,
    ),
    Case(
        "consume JSON",
        ("-C", "-t", "TOPIC", "-e", "-J"),
        ("consume", "TOPIC", "-e", "--json"),
        True,
        exact=False,
    ),
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.name for case in CASES]
    parser.add_argument("--cases", nargs="+", choices=names, default=names, metavar="CASE")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the file (1000)")
    parser.add_argument("--line", type=int, default=100, help="bytes of a line (100)")
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--partitions", type=int, default=1, help="(1)")
    parser.add_argument(
        "-X",
        dest="properties",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a property of librdkafka for both commands",
    )
    return parser.parse_args()


def write_file(path: Path, megabytes: int, length: int) -> None:
    """Lines of hexadecimal digits with one blank in each."""
    chosen = random.Random(1)
    lines = []
    for _ in range(BLOCK_LINES):
        text = f"{chosen.getrandbits(length * 4):0{length}x}"[: length - 1]
        lines.append(f"{text[:8]} {text[9:]}\n")
    block = "".join(lines).encode()
    with path.open("wb") as file:
        for _ in range(max(megabytes * 1_000_000 // len(block), 1)):
            file.write(block)


class Bench:
    """A broker, a file, and a topic that holds it."""

    def __init__(self, arguments: argparse.Namespace, folder: Path, cluster: KafkaCluster) -> None:
        self.file = folder / "lines"
        self.output = folder / "output"
        self._arguments = arguments
        self._servers = cluster.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self._servers})
        self._commands = {
            KCAT: [KCAT],
            OURS: [str(Path(sysconfig.get_path("scripts"), "cykafka"))],
        }
        write_file(self.file, arguments.megabytes, arguments.line)

    def close(self) -> None:
        self._admin.close()

    def create(self, topic: str) -> None:
        new = NewTopic(topic, self._arguments.partitions, 1)
        self._admin.create_topics([new])[topic].result(WAIT_S)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(WAIT_S)

    def run(self, name: str, arguments: Sequence[str], topic: str) -> Timing:
        """Run a command to its end and measure it."""
        filled = [{"TOPIC": topic, "FILE": str(self.file)}.get(each, each) for each in arguments]
        command = [*self._commands[name], *filled, "-b", self._servers, "-q"]
        for each in self._arguments.properties:
            command += ["-X", each]
        with self.output.open("wb") as output:
            started = perf_counter()
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output)
            _, status, usage = os.wait4(process.pid, 0)
            wall = perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)}: status {process.returncode}")
        return Timing(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000)

    def check(self, case: Case) -> None:
        """Compare the output of a reader with the file."""
        if case.exact and self._arguments.partitions == 1:
            same = filecmp.cmp(self.output, self.file, shallow=False)
        else:
            same = count_lines(self.output) == count_lines(self.file)
        if not same:
            raise SystemExit(f"{case.name}: the output is not what the file has")

    def measure(self, case: Case, name: str, full: str) -> Timing:
        arguments = case.kcat if name == KCAT else case.ours
        if case.reads:
            timing = self.run(name, arguments, full)
            self.check(case)
            return timing
        topic = f"to-{name}"
        self.create(topic)
        try:
            return self.run(name, arguments, topic)
        finally:
            self.delete(topic)


def count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def report(name: str, timings: dict[str, list[Timing]]) -> None:
    print(f"\n{name}")
    print(f"{'':9}{'wall, s':>22}{'CPU, s':>10}{'peak, MB':>10}")
    for command, runs in timings.items():
        walls = sorted(run.wall for run in runs)
        spread = f"{statistics.median(walls):.1f} ({walls[0]:.1f} to {walls[-1]:.1f})"
        cpu = statistics.median(run.cpu for run in runs)
        memory = statistics.median(run.memory for run in runs)
        print(f"{command:9}{spread:>22}{cpu:>10.1f}{memory:>10.0f}")
    ratios = sorted(
        ours.wall / kcat.wall for ours, kcat in zip(timings[OURS], timings[KCAT], strict=True)
    )
    median = statistics.median(ratios)
    print(f"cykafka to kcat, wall: {median:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def main() -> None:
    arguments = parse_arguments()
    if shutil.which(KCAT) is None:
        sys.exit("kcat is missing: apt-get install kcat")
    for key, value in describe_machine(load_before()).items():
        print(f"{key}: {value}")
    version = subprocess.run([KCAT, "-V"], capture_output=True, text=True, check=True).stdout
    print(next(line for line in version.splitlines() if line.startswith("Version")))
    cases = [case for case in CASES if case.name in arguments.cases]
    timings: dict[str, dict[str, list[Timing]]] = {
        case.name: {KCAT: [], OURS: []} for case in cases
    }
    with (
        tempfile.TemporaryDirectory(prefix="cykafka-bench-") as folder,
        KafkaCluster(1, properties=SETTINGS) as cluster,
    ):
        bench = Bench(arguments, Path(folder), cluster)
        try:
            full = "full"
            bench.create(full)
            bench.run(OURS, CASES[0].ours, full)
            for at in range(arguments.rounds):
                order = (KCAT, OURS) if at % 2 == 0 else (OURS, KCAT)
                for case in cases:
                    for name in order:
                        show_progress(f"round {at + 1}: {case.name}, {name}")
                        timings[case.name][name].append(bench.measure(case, name, full))
        finally:
            bench.close()
    show_progress("\n")
    for case in cases:
        report(case.name, timings[case.name])


if __name__ == "__main__":
    main()
