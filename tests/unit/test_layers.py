"""The architecture's rules that can be read off the sources, so that nobody has to remember them.

Dependencies point down only: applications (spark, cli, compat, pip_services4_kafka) on the public
modules, those on the compiled ones, those on csrc, and csrc on librdkafka.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
CSRC = ROOT / "csrc"

EXTERN, COMPILED, PUBLIC, APPLICATION = range(4)
OURS = ("cykafka", "pip_services4_kafka", "pyspark_cykafka")
APPLICATIONS = ("spark", "cli", "compat", "__main__")

# The files that declare what is C's, and nothing else.
DECLARATIONS = ("_librdkafka", "_librdkafka_admin", "_csrc")

MAX_LINES = 500
LONGER = re.compile(r"longer than|over 500 lines|more than 500 lines", re.IGNORECASE)
HEAD_LINES = 20
LANGUAGES = ("*.py", "*.pyx", "*.pxd", "*.pyi", "*.c", "*.h", "CMakeLists.txt", "*.cmake", "*.sh")

IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+)?c?import\s+\(?([\w., ]*)", re.MULTILINE)


def module_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> int:
    """The layer of one of our modules, 0 at the bottom."""
    package, *rest = module.split(".")
    if package != "cykafka" or (rest and rest[0] in APPLICATIONS):
        return APPLICATION
    if rest and rest[0] in DECLARATIONS:
        return EXTERN
    if rest and rest[0].startswith("_"):
        return COMPILED
    return PUBLIC


def application(module: str) -> str:
    """Which application a module of the top layer belongs to."""
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
    """Those of them that are ours."""
    return {name for name in every_import(path) if name.split(".")[0] in OURS} - {module_of(path)}


def sources(*patterns: str) -> list[Path]:
    return sorted(path for pattern in patterns for path in SRC.rglob(pattern))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_sources_are_found() -> None:
    # Every other test here passes on an empty list.
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
    # pyspark_cykafka and __main__ are only other doors to spark and cli.
    doors = {"pyspark_cykafka": "cykafka.spark", "cykafka.__main__": "cykafka.cli"}
    others = {
        name
        for name in imports(path)
        if layer(name) == APPLICATION and application(name) not in (own, doors.get(own))
    }

    assert not others


def test_compat_uses_what_everybody_may_use() -> None:
    used = {
        name
        for path in sources("*.py")
        if application(module_of(path)) == "cykafka.compat"
        for name in imports(path)
    }

    assert used
    assert {layer(name) for name in used} <= {PUBLIC, APPLICATION}


def test_pip_services_stand_on_the_client_only() -> None:
    # Their own, pip-services' packages and Python's, but none of the other applications.
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


def test_client_knows_nothing_of_pip_services() -> None:
    offenders = [
        name_of(path)
        for path in sources("*.py", "*.pyx", "*.pxd", "*.pyi")
        if application(module_of(path)) != "pip_services4_kafka"
        and any(name.startswith("pip_services4_") for name in every_import(path))
    ]

    assert offenders == []


def test_compiled_modules_do_not_import_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for path in sources("*.pyx", "*.pxd"):
        graph.setdefault(module_of(path), set()).update(imports(path))

    def walk(module: str, above: tuple[str, ...]) -> None:
        assert module not in above, " -> ".join((*above, module))
        for name in graph.get(module, ()):
            walk(name, (*above, module))

    for module in graph:
        walk(module, ())


def test_only_the_declaration_files_are_extern() -> None:
    allowed = {SRC / "cykafka" / f"{name}.pxd" for name in DECLARATIONS}
    saying = {
        path
        for path in sources("*.pyx", "*.pxd", "*.pxi")
        if re.search(r"^\s*cdef\s+extern\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert saying == allowed


def test_csrc_knows_nothing_of_python() -> None:
    offenders = [
        name_of(path)
        for path in sorted(CSRC.rglob("*.[ch]"))
        if re.search(r'#\s*include\s*[<"](Python|structmember|cpython)', path.read_text())
    ]

    assert offenders == []


@pytest.mark.parametrize("path", sources("*.pyx", "*.pxd"), ids=name_of)
def test_cython_keeps_to_the_conventions(path: Path) -> None:
    source = path.read_text(encoding="utf-8")

    # `except *` looks for an exception after every call; the other three are on their way out.
    for pattern in (r"\bexcept\s*\*", r"^include\b", r"^DEF\b", r"^\s*(IF|ELIF)\b.*:$"):
        assert not re.search(pattern, source, re.MULTILINE), pattern


def test_long_files_say_why() -> None:
    folders = ("csrc", "src", "tests", "benchmarks", "vendor", "docs")
    silent = []
    for folder in folders:
        for pattern in LANGUAGES:
            for path in sorted((ROOT / folder).rglob(pattern)):
                lines = path.read_text(encoding="utf-8").splitlines()
                if len(lines) > MAX_LINES and not LONGER.search("\n".join(lines[:HEAD_LINES])):
                    silent.append(f"{name_of(path)}: {len(lines)} lines")

    assert silent == []
