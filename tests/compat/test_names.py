"""Compare docs/confluent_kafka.md with the installed confluent_kafka and with cykafka.

The page has tables of ``| names | ours | remark |`` under headings that name a module (``##``) or
a class (``###``). A new name of confluent_kafka fails here, and so does a removed one of cykafka.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.ours

SURFACE = Path(__file__).with_name("surface.py")
PAGE = Path(__file__).parents[2] / "docs" / "confluent_kafka.md"
PACKAGE = "confluent_kafka"
OURS = {"same", "same and more", "differs", "later", "falls through"}

Names = dict[str, list[str] | None]


@dataclass(frozen=True)
class Row:
    """A row of a table: its section, its names as written, its status and its remark."""

    section: str
    klass: str
    items: list[str]
    ours: str
    remark: str


def read_rows() -> list[Row]:
    rows = []
    section = klass = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            section, klass = line[3:].strip("`"), ""
        elif line.startswith("### "):
            title = line[4:]
            klass = title.strip("`") if title.startswith("`") else ""
        elif section and re.match(r"\| `", line):
            names, ours, remark = (cell.strip() for cell in line.strip("|").split("|"))
            rows.append(Row(section, klass, re.findall(r"`([^`]+)`", names), ours, remark))
    return rows


ROWS = read_rows()


def names_of(row: Row) -> Names:
    """The row's names as surface.py writes them."""
    found: Names = {}
    klass = row.klass
    for item in row.items:
        name, parenthesis, arguments = item.partition("(")
        if name.startswith("."):
            name = klass + name
        else:
            klass = name
        parameters = [item for item in arguments.rstrip(")").split(", ") if item]
        found[f"{row.section}:{name}"] = parameters if parenthesis else None
    return found


def documented_names() -> Names:
    """Every name in the tables of modules."""
    return {
        name: parameters
        for row in ROWS
        if row.section.startswith(PACKAGE)
        for name, parameters in names_of(row).items()
    }


def run_surface(*arguments: str, given: Any = None) -> Any:
    done = subprocess.run(
        [sys.executable, str(SURFACE), *arguments],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    """The public names of confluent_kafka."""
    surface: dict[str, Any] = run_surface()
    assert len(surface["names"]) > 700
    return surface


def needs_no_item(name: str, theirs: Names) -> bool:
    """Whether a name is an attribute that the constructor of its class takes as an argument."""
    klass, _, attribute = name.rpartition(".")
    return theirs[name] is None and attribute in (theirs.get(klass) or ())


def test_table_has_every_name_with_its_arguments(theirs: dict[str, Any]) -> None:
    names: Names = theirs["names"]
    shown = {name: value for name, value in names.items() if not needs_no_item(name, names)}
    table = documented_names()

    assert sorted(shown.keys() - table.keys()) == [], "names that the page lacks"
    assert sorted(table.keys() - shown.keys()) == [], "names that confluent_kafka does not have"
    assert {name: value for name, value in table.items() if value != shown[name]} == {}


def test_table_has_every_module(theirs: dict[str, Any]) -> None:
    table = [item for row in ROWS if row.section == "Modules" for item in row.items]

    assert sorted(table) == theirs["modules"]


def test_names_marked_as_supported_exist(theirs: dict[str, Any]) -> None:
    later = {name for row in ROWS if row.ours == "later" for name in names_of(row)}
    wanted = {
        name: parameters
        for name, parameters in theirs["names"].items()
        if name not in later and name.rpartition(".")[0] not in later
    }
    assert len(wanted) > 700

    assert run_surface("check", given=wanted) == {}


def test_modules_come_from_the_package_that_the_table_names() -> None:
    modules = {item: row.ours for row in ROWS if row.section == "Modules" for item in row.items}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import importlib.util, json, sys\n"
            "from cykafka.compat import confluent\n"
            "confluent.install()\n"
            "print(json.dumps([name for name in json.load(sys.stdin) if name not in sys.modules\n"
            "                  and importlib.util.find_spec(name) is not None]))",
        ],
        input=json.dumps([name for name in modules if name.count(".") == 1]),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr

    assert sorted(json.loads(done.stdout)) == sorted(
        name for name, ours in modules.items() if ours == "falls through" and name.count(".") == 1
    )


def test_every_row_has_a_status_and_a_reason() -> None:
    assert len(ROWS) > 60
    assert {row.ours for row in ROWS} <= OURS
    assert [row for row in ROWS if row.ours != "same" and not row.remark] == []


def test_configuration_keys_in_the_table_exist() -> None:
    from cykafka import (
        Consumer,
        DeserializingConsumer,
        KafkaException,
        Producer,
        SerializingProducer,
    )

    clients = (Producer, Consumer, SerializingProducer, DeserializingConsumer)
    keys = [item for row in ROWS if row.section == "Configuration" for item in row.items]
    assert len(keys) > 15
    unknown = set(keys)
    for key in keys:
        for client in clients:
            group = {"group.id": "any"} if issubclass(client, Consumer) else {}
            with suppress(KafkaException), client({**group, key: None}):
                unknown.discard(key)

    assert unknown == set()


def test_constants_of_cimpl_have_their_values() -> None:
    source = (
        "import json\n"
        "from confluent_kafka import cimpl\n"
        "print(json.dumps({name: value for name, value in vars(cimpl).items()\n"
        "                  if isinstance(value, int) and name.isupper()}))"
    )
    install = "from cykafka.compat import confluent\nconfluent.install()\n"
    theirs, ours = (
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout
        )
        for code in (source, install + source)
    )
    assert len(theirs) > 60

    assert {name: ours.get(name) for name in theirs} == theirs
