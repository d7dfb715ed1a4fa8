"""The public names of the installed confluent_kafka, and whether cykafka has them.

``surface.py`` prints every public name of confluent_kafka with its parameters. ``surface.py
check`` reads such names and prints those that cykafka lacks when it takes confluent_kafka's place.
Both use JSON. Each runs in its own process (see test_names.py), because only one of the two
packages can be confluent_kafka there.

A name is ``module:name`` or ``module:Class.name``. Its value is a list of parameters, with ``/``
after those that cannot be passed by keyword. The value is null for a name that is not callable.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "confluent_kafka"
# The first module that has a class also gets the members of the class.
MODULES = ("", ".admin", ".error", ".serialization", ".aio", ".cimpl")
PROTOCOL = (
    "__aenter__",
    "__aexit__",
    "__bool__",
    "__call__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__iter__",
    "__len__",
)
# The compiled parts of confluent_kafka have no signatures. Its stubs and docstrings lack these.
UNDOCUMENTED = {
    "AdminClient": ["conf", "/"],
    "AdminClient.alter_configs": ["broker"],
    "AdminClient.cluster_id": ["timeout"],
    "AdminClient.describe_configs": ["broker"],
    "AdminClient.list_groups": ["group", "timeout"],
    "AdminClient.list_topics": ["topic", "timeout"],
}
# The stubs and docstrings have these wrong.
MISDOCUMENTED = {
    "Consumer": ["config", "/"],
    "Consumer.commit": ["message", "offsets", "async", "asynchronous"],
    "KafkaError": ["error", "reason", "fatal", "retriable", "txn_requires_abort"],
    "Producer": ["config", "/"],
    "ShareConsumer": ["config", "/"],
}

Names = dict[str, list[str] | None]


def is_theirs(value: Any) -> bool:
    """Whether confluent_kafka defines the value; its compiled module is named ``cimpl``."""
    home = getattr(value, "__module__", None) or ""
    return home.split(".")[0] in (PACKAGE, "cimpl")


def stubs() -> dict[str, list[str]]:
    """The parameters in cimpl.pyi, by ``function`` or ``Class.method``."""
    spec = importlib.util.find_spec(f"{PACKAGE}.cimpl")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).with_name("cimpl.pyi").read_text())
    found: dict[str, list[str]] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                known = found.setdefault(prefix + node.name, [])  # merges the overloads
                known += [item.arg for item in arguments if item.arg not in known]

    visit(tree.body, "")
    return found


def documented(text: str | None) -> list[str]:
    """The parameters in a docstring, as ``:param type name:``."""
    return re.findall(r"^\s*:param (?:.*? )?(\w+)\s*:", text or "", re.MULTILINE)


def set_by_constructor(klass: type) -> set[str]:
    """The attributes that a constructor written in Python sets."""
    found: set[str] = set()
    for base in klass.__mro__:
        constructor = vars(base).get("__init__")
        if inspect.isfunction(constructor):
            source = inspect.getsource(constructor)
            found.update(re.findall(r"\bself\.(\w+)(?:: [^=]+)? = ", source))
    return found


def members(klass: type) -> list[str]:
    """The public members that a class adds to its public base class."""
    if hasattr(klass, "__members__"):
        return list(klass.__members__)
    found = set_by_constructor(klass)
    for base in klass.__mro__:
        if base is klass or (base.__name__.startswith("_") and is_theirs(base)):
            found.update(vars(base))
        elif is_theirs(base):
            break
    constants = klass.__name__ == "KafkaError"  # librdkafka's internal codes begin with one _
    return sorted(
        item
        for item in found
        if not item.startswith("_") or item in PROTOCOL or (constants and item[1:].isupper())
    )


class Surface:
    """Collects the names."""

    def __init__(self) -> None:
        self.names: Names = {}
        self._stubs = stubs()
        self._told: set[type] = set()

    def module(self, name: str) -> None:
        module = importlib.import_module(PACKAGE + name)
        exported = getattr(module, "__all__", ())
        for item, value in sorted(vars(module).items()):
            if item.startswith("_") or isinstance(value, ModuleType):
                continue
            if item in exported or is_theirs(value) or (isinstance(value, int) and item.isupper()):
                self._value(f"{PACKAGE}{name}:{item}", value)

    def _value(self, name: str, value: Any) -> None:
        short = name.partition(":")[2]
        if not inspect.isclass(value):
            self.names[name] = self._parameters(value, short) if callable(value) else None
        elif value in self._told:
            self.names[name] = None
        else:
            self._told.add(value)
            plain = issubclass(value, Exception) and not inspect.isfunction(value.__init__)
            is_called = not plain and not hasattr(value, "__members__")
            self.names[name] = self._parameters(value, short) if is_called else None
            for item in members(value):
                member = getattr(value, item, None)
                self.names[f"{name}.{item}"] = (
                    self._parameters(member, f"{short}.{item}", value)
                    if inspect.isroutine(member) and item not in PROTOCOL
                    else None
                )

    def _parameters(self, function: Any, name: str, klass: type | None = None) -> list[str]:
        """The parameters of a callable, in order."""
        if name in MISDOCUMENTED:
            return MISDOCUMENTED[name]
        key = f"{name}.__init__" if inspect.isclass(function) else name
        if key in self._stubs:
            found = list(self._stubs[key])
        else:
            try:
                found = [
                    value.name
                    for value in inspect.signature(function).parameters.values()
                    if value.kind not in (value.VAR_POSITIONAL, value.VAR_KEYWORD)
                ]
            except ValueError:
                found = []
            found += [item for item in documented(function.__doc__) if item not in found]
        found = [item for item in found if item not in ("self", "kwargs")]
        if klass is not None and is_positional(function, klass):
            found.append("/")
        return found + [item for item in UNDOCUMENTED.get(name, ()) if item not in found]


def is_positional(function: Any, klass: type) -> bool:
    """Whether a compiled method that has arguments refuses keywords."""
    if not inspect.ismethoddescriptor(function):
        return False
    try:
        function(klass.__new__(klass), **{"?": None})
    except TypeError as error:
        if "takes no keyword arguments" not in str(error):
            return False
    except Exception:
        return False
    try:
        function(klass.__new__(klass), *[None] * 9)
    except TypeError as error:
        return "takes no arguments" not in str(error)
    return False


def submodules() -> list[str]:
    """Every module that has a public name."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    found = {f"{PACKAGE}.cimpl"}
    for file in folder.rglob("*.py"):
        parts = file.relative_to(folder).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if parts and not any(part.startswith("_") for part in parts):
            found.add(".".join((PACKAGE, *parts)))
    return sorted(found)


def is_missing(name: str, parameters: list[str] | None) -> str | None:
    """Why a name of the ``confluent_kafka`` in this process differs from the table, or None."""
    home, _, path = name.partition(":")
    owner: Any = importlib.import_module(home)
    klass: type | None = None
    for item in path.split("."):
        if inspect.isclass(owner):
            klass = owner
            if item in set_by_constructor(klass) or item in vars(example(klass)):
                return None
        try:
            owner = getattr(owner, item)
        except (AttributeError, ImportError) as error:
            return str(error)
    if not parameters:
        return None
    by_keyword = [parameter for parameter in parameters if parameters[-1] != "/"]
    try:
        known = inspect.signature(owner).parameters
    except (TypeError, ValueError):
        known = {}
    if not known or any(value.kind is value.VAR_KEYWORD for value in known.values()):
        return refused(owner, klass, by_keyword, len(parameters) - 1)
    lacking = [item for item in by_keyword if item not in known]
    return f"does not take {', '.join(lacking)}" if lacking else None


def example(klass: type) -> Any:
    """An object of a class that only carries data, else the class ``Surface`` (no attributes)."""
    for count in range(10):
        with suppress(Exception):
            made = klass(*[None] * count)
            if hasattr(made, "__dict__"):
                return made
    return Surface


def refused(function: Any, klass: type | None, names: list[str], count: int) -> str | None:
    """The error of a compiled function about the names or the count of arguments, or None."""
    receiver = [klass.__new__(klass)] if klass is not None else []
    try:
        if names:
            function(*receiver, **{name: object() for name in names})
        else:
            function(*receiver, *[object()] * count)
    except TypeError as error:
        words = "unexpected keyword|no keyword arguments|positional argument|takes .* arguments?"
        return str(error) if re.search(words, str(error)) else None
    except Exception:
        return None
    return None


if __name__ == "__main__":
    if sys.argv[1:] == ["check"]:
        from cykafka.compat import confluent

        confluent.install()
        wanted: Names = json.load(sys.stdin)
        answers = {name: is_missing(name, parameters) for name, parameters in wanted.items()}
        print(json.dumps({name: why for name, why in answers.items() if why}, indent=1))
    else:
        surface = Surface()
        for item in MODULES:
            surface.module(item)
        print(json.dumps({"names": surface.names, "modules": submodules()}, indent=1))
