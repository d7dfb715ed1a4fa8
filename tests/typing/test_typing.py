"""The stubs with user code. `make lint` compares the stubs with the compiled modules."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ours

HERE = Path(__file__).parent
TIMEOUT_S = 240


def run_checker(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a type checker without the project's configuration, like a user."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=cache
    )


def strict(cache: Path, path: Path) -> subprocess.CompletedProcess[str]:
    options = ("--strict", "--config-file", "", "--no-error-summary", "--cache-dir", str(cache))
    return run_checker(cache, "mypy", *options, str(path))


def marked(path: Path) -> dict[int, list[str]]:
    """The lines with a mistake, and mypy's codes for it."""
    return {
        number: mark[1].split(", ")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (mark := re.search(r"# expect: ([\w, -]+)$", line))
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


@pytest.fixture(scope="module")
def package() -> Path:
    import cykafka

    return Path(cykafka.__file__).parent


def test_typical_code_is_accepted(cache: Path) -> None:
    done = strict(cache, HERE / "accepted.py")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_mistakes_are_reported_at_their_lines(cache: Path) -> None:
    path = HERE / "rejected.py"
    expected = marked(path)

    done = strict(cache, path)

    found: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        error = re.match(r".*rejected\.py:(\d+): error: .*\[([\w-]+)\]$", line)
        if error:
            found.setdefault(int(error[1]), []).append(error[2])
    assert found.keys() == expected.keys(), done.stdout
    for number, codes in found.items():
        assert set(codes) <= set(expected[number]), done.stdout


@pytest.mark.parametrize("name", ["accepted.py", "rejected.py"])
def test_pyright_finds_the_mistakes_and_no_others(tmp_path: Path, name: str) -> None:
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    code = shutil.copy(HERE / name, tmp_path)

    done = run_checker(
        tmp_path, "basedpyright", "--pythonpath", sys.executable, "--outputjson", str(code)
    )

    problems = json.loads(done.stdout)["generalDiagnostics"]
    found = {item["range"]["start"]["line"] + 1 for item in problems}
    assert found == marked(HERE / name).keys(), done.stdout


def test_only_what_has_no_type_is_any_in_the_stubs(package: Path) -> None:
    """A result that is Any switches the checks of its users off."""
    untyped = {
        # The answers of all requests, and objects of the application's classes.
        "Admin._send",
        "EnvelopeCodec.decode",
        "EnvelopeCodec.to_envelope",
        "EnvelopeCodec.to_record",
        # As in typeshed.
        "Delivery.__await__",
        "_ArrowArray.__arrow_c_array__",
        "_ArrowStream.__arrow_c_stream__",
        "_NumpyArray.__array_interface__",
    }
    found = set()
    for path in package.rglob("*.pyi"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name != "__reduce__":
                    result = ast.unparse(item.returns) if item.returns else "Any"
                    if re.search(r"\bAny\b", result):
                        found.add(f"{node.name}.{item.name}")
    assert found == untyped


@pytest.mark.parametrize(
    ("stub", "compiled"),
    [
        ("admin/client", "cykafka.admin.AdminClient"),
        ("common/library", "cykafka.Uuid"),
        ("common/message", "cykafka.Message"),
        ("common/partition", "cykafka.TopicPartition"),
        ("consume/consumer", "cykafka.Consumer"),
        ("produce/producer", "cykafka.Producer"),
    ],
)
def test_constructor_has_the_parameters_of_its_stub(
    package: Path, stub: str, compiled: str
) -> None:
    module, _, name = compiled.rpartition(".")
    own = getattr(importlib.import_module(module), name)
    (declared,) = (
        item.args
        for node in ast.parse((package / f"_core/{stub}.pyi").read_text()).body
        if isinstance(node, ast.ClassDef) and name.startswith(node.name)
        for item in node.body
        if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    )
    arguments = [*declared.posonlyargs, *declared.args][1:]
    required = len(arguments) - len(declared.defaults)
    expected = [(item.arg, at >= required) for at, item in enumerate(arguments)]
    if declared.kwarg is not None:
        expected.append((declared.kwarg.arg, False))

    for signature in (inspect.signature(own), inspect.signature(own.__init__)):
        assert [
            (value.name, value.default is not value.empty)
            for value in signature.parameters.values()
            if value.name != "self"
        ] == expected


def test_package_is_marked_as_typed(package: Path) -> None:
    assert (package / "py.typed").exists()


def test_every_compiled_module_has_a_stub(package: Path) -> None:
    compiled = {path.parent / path.name.split(".")[0] for path in package.rglob("*.so")}

    assert len(compiled) > 30
    assert {path for path in compiled if not path.with_suffix(".pyi").exists()} == set()
