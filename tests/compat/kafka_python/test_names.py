"""Each name of kafka-python 0.9.5, with its signature, value, fields or error number."""

from __future__ import annotations

import ast
import inspect
import re
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PACKAGE = "cykafka.compat.kafka_python"
# A line: a dotted name, then "(signature)", " = value", " fields ..." or " error BASE NUMBER".
LINE = re.compile(r"([\w.]+)(?:\((.*)\)| = (.*)| fields (.*)| error (\w+) (\S+))?$")
LINES = (HERE / "names.txt").read_text().splitlines()
# Names of parameters that only ours have.
ADDED = {"names", "random_start", "partitioner"}
# The document's misprints, and the names that they stand for.
MISPRINTS = {
    "BrokerNotFoundError": "BrokerNotAvailableError",
    "InvalidFetchRequest": "InvalidFetchRequestError",
    "LeaderNotFoundError": "LeaderNotAvailableError",
    "OffsetOutOfRangeException": "OffsetOutOfRangeError",
    "x": "UnknownTopicOrPartitionError",
}


def module_of(name: str) -> tuple[Any, list[str]]:
    """Ours for the longest module in a name, and the rest of the name."""
    parts = name.split(".")[1:]
    for end in range(len(parts), -1, -1):
        try:
            return import_module(".".join([PACKAGE, *parts[:end]])), parts[end:]
        except ModuleNotFoundError:
            continue
    raise AssertionError(name)


def found(name: str) -> Any:
    module, rest = module_of(name)
    return reduce(getattr, rest, module)


def parameters(text: str) -> list[tuple[str, Any]]:
    """Names and defaults of a signature's text; a star is part of the name."""
    arguments = ast.parse(f"def f({text.replace('=...', '=None')}): pass").body[0].args  # type: ignore[attr-defined]
    plain = [argument.arg for argument in arguments.args]
    values = [ast.literal_eval(default) for default in arguments.defaults]
    defaults = [inspect.Parameter.empty] * (len(plain) - len(values)) + values
    listed = list(zip(plain, defaults, strict=True))
    if arguments.vararg:
        listed.append((f"*{arguments.vararg.arg}", inspect.Parameter.empty))
    if arguments.kwarg:
        listed.append((f"**{arguments.kwarg.arg}", inspect.Parameter.empty))
    return listed


def ours(value: Any) -> list[tuple[str, Any]]:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [
        (
            stars.get(item.kind, "") + item.name,
            [] if item.default == () else item.default,
        )
        for item in inspect.signature(value).parameters.values()
        if item.name not in ADDED and item.name != "self"
    ]


@pytest.mark.parametrize("line", LINES)
def test_name_is_as_in_the_release(line: str) -> None:
    matched = LINE.match(line)
    assert matched is not None, line
    name, signature, value, fields, base, number = matched.groups()
    is_there = found(name)
    if signature is not None:
        assert ours(is_there) == parameters(signature)
    elif value is not None:
        assert str(is_there).replace(PACKAGE, "kafka") == value or repr(is_there) == value
    elif fields is not None:
        assert is_there._fields == tuple(fields.split(", "))
    elif base is not None:
        assert is_there.__base__.__name__ == base
        assert getattr(is_there, "errno", None) == (None if number == "None" else int(number))


@pytest.mark.parametrize("misprint", MISPRINTS)
def test_misprint_of_the_document_is_an_alias(misprint: str) -> None:
    common = import_module(f"{PACKAGE}.common")
    assert getattr(common, misprint) is getattr(common, MISPRINTS[misprint])


def test_documentation_names_every_name() -> None:
    page = (HERE.parents[2] / "docs" / "kafka-python.md").read_text()
    mentioned = set(re.findall(r"\w+", page))
    skipped = {"kafka.common", "kafka.util"}  # the structs and errors are one row
    missing = [
        line
        for line in LINES
        if (name := LINE.match(line)[1])  # type: ignore[index]
        and not any(name.startswith(f"{module}.") for module in skipped)
        and name.count(".") == 2
        and name.rpartition(".")[2] not in mentioned
        and " = " not in line
    ]
    assert missing == []
