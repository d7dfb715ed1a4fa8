"""The rules of the architecture that the sources show.

Imports point down only, from each layer to those below it:

- applications: spark, cli, compat, pip_services4_kafka
- public modules: cykafka, cykafka.admin, cykafka.testing, ...
- the packages of cykafka._core, in the order of PACKAGES
- csrc, which is C and does not use Python

The folders of the command ``cykafka``, of the schemas, of Spark and of its jobs import down only,
too; see ORDERS.

No modules import each other in a cycle.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cykafka import internal

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
CSRC = ROOT / "csrc"

# The packages and modules of cykafka._core, from the bottom to the top.
PACKAGES = (
    "clib",
    "common",
    "model",
    "client",
    "build_info",
    "mock",
    "arrow",
    "batch",
    "consume",
    "share",
    "produce",
    "envelope",
    "admin",
)
CORE = "cykafka._core"
PUBLIC, APPLICATION = len(PACKAGES), len(PACKAGES) + 1
OURS = ("cykafka", "pip_services4_kafka", "pyspark_cykafka")
APPLICATIONS = ("spark", "cli", "compat", "__main__")

# The folders of a package, and the modules beside them that others import, from the bottom to the
# top. All other modules beside them are above.
ORDERS = {
    "cykafka.cli": ("terminal", "cluster", "records", "top", "commands"),
    "cykafka.schemas": ("model", "arrow", "registry", "serdes"),
    "cykafka.spark": (
        "java",
        "clients",
        "sink",
        "source",
        "metrics",
        "data_source",
        "jobs",
    ),
    "cykafka.spark.jobs": (
        "problems",
        "config",
        "folders",
        "records",
        "observing",
        "run",
        "tables",
        "archive",
        "replay",
        "mirror",
        "profile",
    ),
}
# The jobs, which do not import each other.
JOBS = ("archive", "replay", "mirror", "profile")

# The folder of the files that only declare C names.
DECLARATIONS = SRC / "cykafka" / "_core" / "clib"

IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+)?c?import\s+\(?([\w., ]*)", re.MULTILINE)


def module_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> int:
    """The layer of a module of the project, 0 at the bottom."""
    package, *rest = module.split(".")
    if package != "cykafka" or (rest and rest[0] in APPLICATIONS):
        return APPLICATION
    if rest[:1] != ["_core"]:
        return PUBLIC
    return PACKAGES.index(rest[1]) if len(rest) > 1 else 0


def application(module: str) -> str:
    """The application of a module of the top layer."""
    package, *rest = module.split(".")
    return f"{package}.{rest[0]}" if package == "cykafka" and rest else package


def python_imports(source: str, module: str, is_package: bool) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                keep = len(parts) - node.level + is_package
                base = ".".join([*parts[:keep], *filter(None, [base])])
            yield base
            # A name imported from a package may be a module below it.
            yield from (f"{base}.{alias.name}" for alias in node.names if exists(base, alias.name))


def exists(package: str, name: str) -> bool:
    folder = SRC.joinpath(*package.split("."))
    return any(folder.joinpath(name + end).exists() for end in ("", ".py", ".pyx", ".pxd"))


def cython_imports(source: str) -> Iterator[str]:
    for base, names in IMPORT.findall(source):
        if base:
            yield base
            yield from (
                f"{base}.{name}" for name in re.findall(r"\w+", names) if exists(base, name)
            )
        else:
            yield from (name.split(" as ")[0].strip() for name in names.split(","))


def every_import(path: Path) -> set[str]:
    """The modules that a source file imports or cimports."""
    source = path.read_text(encoding="utf-8")
    if path.suffix in (".pyx", ".pxd"):
        return set(cython_imports(source))
    return set(python_imports(source, module_of(path), path.name == "__init__.py"))


def imports(path: Path) -> set[str]:
    """The modules of the project among the imports of a source file."""
    return {name for name in every_import(path) if name.split(".")[0] in OURS} - {module_of(path)}


def sources(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in SRC.rglob(pattern))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_sources_are_found() -> None:
    # The other tests here would pass with an empty list.
    assert sources("*.py")
    assert sources("*.pyx")
    assert any(imports(path) for path in sources("*.pyx"))
    assert list(CSRC.glob("ck_*.h"))


@pytest.mark.parametrize("path", sources("*.py", "*.pyx", "*.pxd", "*.pyi"), ids=name_of)
def test_imports_point_down_only(path: Path) -> None:
    module = module_of(path)
    upward = {name for name in imports(path) if layer(name) > layer(module)}

    assert not upward, f"{name_of(path)} imports from a layer above its own"


@pytest.mark.parametrize(
    "path",
    [path for path in sources("*.py") if layer(module_of(path)) == APPLICATION],
    ids=name_of,
)
def test_applications_do_not_import_each_other(path: Path) -> None:
    own = application(module_of(path))
    # pyspark_cykafka and __main__ are only other names for spark and cli.
    doors = {"pyspark_cykafka": "cykafka.spark", "cykafka.__main__": "cykafka.cli"}
    others = {
        name
        for name in imports(path)
        if layer(name) == APPLICATION and application(name) not in (own, doors.get(own))
    }

    assert not others


def height(module: str, package: str) -> int:
    """The place of a module of a package in its order."""
    order = ORDERS[package]
    name = module.removeprefix(f"{package}.").split(".")[0]
    return order.index(name) if name in order else len(order)


def inner_imports(package: str) -> list[tuple[str, str]]:
    """Each module of a package, with each module of the package that it imports."""
    inside = f"{package}."
    paths = [path for path in sources("*.py") if module_of(path).startswith(inside)]
    return [
        (module_of(path), name)
        for path in paths
        for name in imports(path)
        if name.startswith(inside)
    ]


@pytest.mark.parametrize("package", ORDERS)
def test_folders_import_down_only(package: str) -> None:
    found = inner_imports(package)
    offenders = {item for item in found if height(item[1], package) > height(item[0], package)}

    assert {height(module, package) for pair in found for module in pair} == set(
        range(len(ORDERS[package]) + 1)
    )
    assert offenders == set()


def test_jobs_do_not_import_each_other() -> None:
    package = "cykafka.spark.jobs"
    places = [
        tuple(module.removeprefix(f"{package}.").split(".")[0] for module in pair)
        for pair in inner_imports(package)
    ]
    between = {(own, other) for own, other in places if own in JOBS and other in JOBS}

    assert set(JOBS) <= {own for own, _ in places}
    assert all(own == other for own, other in between), between


def test_compat_uses_only_public_modules() -> None:
    used = {
        name
        for path in sources("*.py")
        if application(module_of(path)) == "cykafka.compat"
        for name in imports(path)
    }

    assert used
    assert {layer(name) for name in used} <= {PUBLIC, APPLICATION}


def test_pip_services_import_only_the_client() -> None:
    # Their own modules, pip-services' and Python's, but no other application.
    used = {
        name
        for path in sources("*.py")
        if application(module_of(path)) == "pip_services4_kafka"
        for name in every_import(path)
    }
    ours = {name for name in used if name.split(".")[0] in OURS}
    others = {name.split(".")[0] for name in used - ours} - set(sys.stdlib_module_names)

    assert ours
    assert {application(name) for name in ours if layer(name) == APPLICATION} == {
        "pip_services4_kafka"
    }
    assert all(name.startswith("pip_services4_") for name in others), others


def test_client_does_not_import_pip_services() -> None:
    offenders = [
        name_of(path)
        for path in sources("*.py", "*.pyx", "*.pxd", "*.pyi")
        if application(module_of(path)) != "pip_services4_kafka"
        and any(name.startswith("pip_services4_") for name in every_import(path))
    ]

    assert offenders == []


def is_own(path: Path, name: str) -> bool:
    """Whether a module belongs to the same application as a file: `cykafka.cli`, for example."""
    return module_of(path).split(".")[:2] == name.split(".")[:2]


def test_applications_use_only_the_public_modules_of_the_client() -> None:
    # cykafka.internal has names that only our applications need.
    offenders = {
        (name_of(path), name)
        for path in sources("*.py")
        if layer(module_of(path)) == APPLICATION
        for name in imports(path)
        if layer(name) < PUBLIC
        or (name.startswith("cykafka.") and "._" in name and not is_own(path, name))
    }

    assert offenders == set()


def test_every_internal_name_has_a_user() -> None:
    used = {
        alias.name
        for path in sources("*.py")
        if layer(module_of(path)) == APPLICATION
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "cykafka.internal"
        for alias in node.names
    }

    assert used == set(internal.__all__)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, directly or not."""
    reached: dict[str, set[str]] = {}
    for module in graph:
        seen: set[str] = set()
        waiting = list(graph[module])
        while waiting:
            name = waiting.pop()
            if name in graph and name not in seen:
                seen.add(name)
                waiting.extend(graph[name])
        reached[module] = seen
    found = {
        tuple(sorted(name for name in seen if module in reached[name]))
        for module, seen in reached.items()
        if module in seen
    }
    return [list(group) for group in sorted(found)]


def test_import_cycles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"x"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def test_modules_have_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for path in sources("*.py", "*.pyx", "*.pxd"):
        graph.setdefault(module_of(path), set()).update(imports(path))

    assert circles(graph) == []


def test_only_the_declaration_files_are_extern() -> None:
    saying = {
        path
        for path in sources("*.pyx", "*.pxd", "*.pxi")
        if re.search(r"^\s*cdef\s+extern\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert saying == {path for path in DECLARATIONS.iterdir() if path.suffix == ".pxd"}


def test_csrc_does_not_use_python() -> None:
    offenders = [
        name_of(path)
        for path in sorted(CSRC.rglob("*.[ch]"))
        if re.search(r'#\s*include\s*[<"](Python|structmember|cpython)', path.read_text())
    ]

    assert offenders == []


@pytest.mark.parametrize("path", sources("*.pyx", "*.pxd"), ids=name_of)
def test_cython_keeps_to_the_conventions(path: Path) -> None:
    source = path.read_text(encoding="utf-8")

    # `except *` checks for an exception after every call. The other three are deprecated.
    for pattern in (r"\bexcept\s*\*", r"^include\b", r"^DEF\b", r"^\s*(IF|ELIF)\b.*:$"):
        assert not re.search(pattern, source, re.MULTILINE), pattern


def test_clients_are_at_most_three_classes_deep() -> None:
    import cykafka
    from cykafka.admin import AdminClient

    def depth(class_: type) -> int:
        ours = class_.__module__.startswith("cykafka")
        return ours + max(map(depth, class_.__bases__), default=0)

    for client in (
        cykafka.Producer,
        cykafka.Consumer,
        cykafka.SerializingProducer,
        cykafka.DeserializingConsumer,
    ):
        assert 2 <= depth(client) <= 3, client.__mro__
    # One more: a class for the requests of each subject stands between client and core.
    assert depth(AdminClient) == 4, AdminClient.__mro__
