"""The commands of the guide to administration on the command line do what the guide says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from fixture_types import MakeConsumer, MakeProducer, Unique
from guides import ROOT

from cykafka import TopicPartition

pytestmark = pytest.mark.ours

PAGE = "docs/cli-administration.md"


def commands() -> list[str]:
    """The lines with a command, in the order of the page."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", "").splitlines()]
    return [line for line in lines if not line.startswith("#")]


def members() -> Iterator[tuple[str, list[str]]]:
    """Each command of the table of JSON, and the names of its members."""
    text = (ROOT / PAGE).read_text(encoding="utf-8").split("\n## JSON\n")[1]
    for cells in re.findall(r"^\| (`.*) \| (.*) \|$", text, re.MULTILINE):
        for command in re.findall(r"`(.*?)`", cells[0]):
            yield command, cells[1].split(", ")


@pytest.fixture
def names(unique: Unique) -> dict[str, str]:
    """Names of this test for those of the page."""
    return {item: unique(item) for item in ("orders", "billing", "alice")}


def renamed(line: str, names: dict[str, str]) -> str:
    pattern = re.compile(rf"\b({'|'.join(names)})\b")
    return pattern.sub(lambda match: names[match[1]], line)


@pytest.fixture
def shell(run_cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Run a line in this process as a shell would run it; return the standard output."""
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> str:
        program, *arguments = shlex.split(line)
        assert program == "cykafka"
        target = arguments.pop() if arguments[-2:-1] == [">"] else None
        if target is not None:
            assert arguments.pop() == ">"
        out = run_cli(*arguments).out
        if target is not None:
            Path(target).write_text(out)
        return str(out)

    return run


def test_commands_of_the_guide_run(
    shell: Callable[[str], str],
    names: dict[str, str],
    run_cli: Run,
    make_producer: MakeProducer,
    make_consumer: MakeConsumer,
) -> None:
    topic, group = names["orders"], names["billing"]
    (broker, *_) = {row["name"] for row in run_cli("configs", "describe", "broker", "--json").rows}
    lines = [line for line in commands() if not line.startswith("cykafka broker ")]
    assert len(lines) > 45
    output: dict[str, str] = {}
    for line in lines:
        if line == "cykafka topics describe orders":
            make_producer().publish(topic, [b"x"] * 60, partitions=[*range(6)] * 10).wait()
        if line == "cykafka groups list":
            offsets = [TopicPartition(topic, number, 5) for number in range(6)]
            make_consumer({"group.id": group}).commit(offsets=offsets, asynchronous=False)
        output[line] = shell(renamed(line, names).replace("broker 1", f"broker {broker}"))

    assert f"{topic[:5]}" in output["cykafka topics list 'orders*'"]
    assert "__consumer_offsets" in output["cykafka topics list --internal"]
    assert re.search(r"\n +5 .* 10 +10\n", output["cykafka topics describe orders"])
    assert re.search(rf"\n{group} .* 30\b", output["cykafka groups lag billing"])
    dry = output["cykafka groups reset billing --topic orders --to earliest --dry-run"]
    assert re.search(rf"\n{group} +{topic} +0 +5 +0 ", dry)
    to_two = output["cykafka groups reset billing --topic orders:0,1 --to 2 --yes"]
    assert len(to_two.splitlines()) == 3
    assert output["cykafka groups delete billing --yes"].endswith("deleted\n")
    assert len(output["cykafka acls list --principal User:alice"].splitlines()) == 8
    assert output["cykafka acls delete --principal User:alice --yes"].count("User:alice") == 7


@pytest.mark.usefixtures("own_brokers")
def test_broker_of_the_guide_runs(tmp_path: Path) -> None:
    (line,) = (line for line in commands() if line.startswith("cykafka broker "))
    (tmp_path / "cykafka").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cykafka "$@"\n')
    (tmp_path / "cykafka").chmod(0o755)

    done = subprocess.run(
        ["sh", "-c", line],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert [row.split()[:3] for row in done.stdout.splitlines()] == [
        ["topic", "outcome"],
        ["orders", "created"],
        ["topic", "partitions", "replication_factor"],
        ["orders", "1", "1"],
    ]


def test_members_of_json_are_those_of_the_guide(
    names: dict[str, str], run_cli: Run, make_producer: MakeProducer, make_consumer: MakeConsumer
) -> None:
    topic, group = names["orders"], names["billing"]
    documented = dict(members())
    seen: dict[str, list[str]] = {}

    def run(command: str, *arguments: object) -> Any:
        rows = run_cli(*command.split(), *arguments, "--json").rows
        assert rows
        seen[command] = list(rows[0])
        return rows[0]

    run("topics create", topic, "-p", 2)
    make_producer().publish(topic, [b"x"]).wait()
    consumer = make_consumer({"group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    run("topics list", topic)
    described = run("topics describe", topic)
    run("topics offsets", topic)
    run("topics offsets --time", "-1h", topic)
    run("topics delete-records", topic, "--before", "end", "--dry-run")
    run("topics alter", topic, "--partitions", 3, "--yes")
    run("configs alter", "topic", topic, "--set", "segment.ms=8000000")
    run("configs describe", "topic", topic, "--all")
    run("groups list", group)
    run("groups lag", group)
    run("groups reset", group, "--all-topics", "--to", "end", "--dry-run")
    run("groups delete-offsets", group, topic, "--dry-run")
    run("groups delete", group, "--dry-run")
    consumer.subscribe([topic])
    consumer.poll(1.0)
    shown = run("groups describe", group)
    principal = f"User:{names['alice']}"
    run("acls create", "--topic", topic, "--operation", "read", "--principal", principal)
    seen["acls"] = seen.pop("acls create")
    run("bench", "--topic", topic, "--only", "produce", "--records", 5)
    run("topics delete", topic, "--yes")

    assert seen == documented
    text = " ".join((ROOT / PAGE).read_text(encoding="utf-8").split())
    for name, parts in (("partitions", described), ("offsets", shown)):
        *most, last = parts[name][0]
        assert f"have {', '.join(most)} and {last}" in text
