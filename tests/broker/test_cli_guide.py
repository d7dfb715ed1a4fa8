"""The commands of docs/cli.md and docs/cli-schemas.md do what the pages say."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fixture_types import Unique
from guides import ROOT
from machine import WAIT_S

from cykafka.cli.records.json_record import decode
from cykafka.testing import SchemaRegistry

pytestmark = pytest.mark.ours

PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
SCHEMAS = (ROOT / "docs" / "cli-schemas.md").read_text(encoding="utf-8")
FILES = {
    "orders.txt": b"first\nsecond\n",
    "keyed.txt": b"order-7:first\norder-8:second\n",
    "tombstones.txt": b"order-8:\n",
    "image.png": b"\x89PNG\n\xff",
}


def fences(kind: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def rows() -> list[str]:
    """The commands of the table of kcat's commands."""
    table = PAGE.split("| kcat | cykafka |")[1].split("\n\n")[0]
    return [line.split(" | ")[-1].strip(" |`") for line in table.splitlines()[2:]]


class Shell(NamedTuple):
    """A folder with the page's files and profiles, and names that no other test uses."""

    folder: Path
    servers: str
    registry: str
    names: dict[str, str]

    def own(self, text: str) -> str:
        text = text.replace("localhost:9092", self.servers)
        text = text.replace("http://localhost:8081", self.registry)
        for word, name in self.names.items():
            text = re.sub(rf"(?<![\w.^-]){word}(?![\w.-])", name, text)
        return text

    def start(self, script: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", self.own(script)],
            cwd=self.folder,
            env={
                "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
                "HOME": str(self.folder),
                "CYKAFKA_BOOTSTRAP_SERVERS": self.servers,
                "CYKAFKA_SCHEMA_REGISTRY_URL": self.registry,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, script: str) -> bytes:
        process = self.start(script)
        out, err = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, (script, err)
        return out


@pytest.fixture
def shell(tmp_path: Path, cluster: Any, unique: Unique) -> Iterator[Shell]:
    names = {word: unique(word) for word in ("orders", "offers", "counts", "copy", "billing")}
    for word in ("orders", "offers", "counts"):
        cluster.create_topic(names[word], 1)
    cluster.create_topic(names["copy"], 4)
    names["offers-value"] = f"{names['offers']}-value"
    registry = SchemaRegistry()
    shell = Shell(tmp_path, cluster.bootstrap_servers, registry.url, names)
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    config = tmp_path / ".config" / "cykafka" / "config.toml"
    config.parent.mkdir(parents=True)
    (profiles,) = fences("toml")
    config.write_text(shell.own(profiles))
    with registry:
        yield shell


def test_page_has_examples_to_run() -> None:
    assert len(fences("sh")) >= 10
    assert len(rows()) == 18
    assert len(fences("sh", SCHEMAS)) == 4
    assert all(row.startswith("cykafka ") for row in rows())


def test_scripts_of_the_page_run_in_turn(shell: Shell) -> None:
    first, *others = fences("sh")
    assert shell.run(first) == b"first\nsecond\n"
    for script in others:
        shell.run(script)
    copied = shell.run("cykafka consume copy -e --json").splitlines()
    values = [json.loads(line)["value"] for line in copied]
    assert values.count(None) == 1  # the tombstone
    assert '{"total": 12}' in values


def test_commands_beside_kcats_run(shell: Shell) -> None:
    shell.run("cykafka produce orders orders.txt orders.txt -q")
    (shell.folder / "name.avsc").write_text('"string"')
    shell.run("""echo '"first"' | cykafka produce offers --value-format avro --schema name.avsc""")
    (shell.folder / "count").write_bytes(struct.pack(">q", 7))
    shell.run("cykafka produce counts --whole count")
    for command in rows():
        if "consume" in command and not re.search(r" -e\b| -c | --until ", command):
            process = shell.start(f"exec {command}")
            assert process.stdout is not None
            assert process.stdout.readline() == b"first\n"
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=WAIT_S)
            assert process.returncode == 130
        else:
            shell.run(command)
    assert b"\x89PNG\n\xff\n" in shell.run("cykafka consume orders -e")


def test_json_of_the_page_is_a_record() -> None:
    (line,) = fences("json")
    record = decode(line.encode())
    assert record.headers == [("source", b"shop")]
    assert (record.key, record.value, record.timestamp) == (b"order-7", b"text", 1767225600000)


def test_scripts_of_the_page_about_schemas_run_in_turn(shell: Shell) -> None:
    first, numbers, *others = fences("sh", SCHEMAS)
    printed = re.search(r"The last command prints `(.*)`", SCHEMAS)
    assert printed is not None
    assert shell.run(first).decode() == f"{printed[1]}\n"
    assert shell.run(numbers) == b'8: {"id":8,"note":null,"price":"3.00"}\n'
    for script in others:
        shell.run(script)
    copied = shell.run("cykafka consume copy -e --json --value-format avro").splitlines()
    assert sorted(json.loads(line)["value"]["id"] for line in copied) == [7, 8]


def test_profile_of_the_page_about_schemas_is_valid(shell: Shell) -> None:
    (profile,) = fences("toml", SCHEMAS)
    config = shell.folder / ".config" / "cykafka" / "config.toml"
    secret = shell.folder / ".secrets" / "registry"
    secret.parent.mkdir()
    secret.write_text("ada:geheim\n")
    lines = [line for line in shell.own(profile).splitlines() if ".ssl.ca." not in line]
    config.write_text("\n".join(lines))
    shell.run(f"cykafka schemas list -r {shell.registry}")
