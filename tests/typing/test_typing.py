"""The stubs with user code. `make lint` compares the stubs with the compiled modules."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ours

HERE = Path(__file__).parent
TIMEOUT_S = 240


def run_mypy(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mypy without a configuration, like a user."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=cache
    )


def strict(cache: Path, path: Path) -> subprocess.CompletedProcess[str]:
    options = ("--strict", "--config-file", "", "--no-error-summary", "--cache-dir", str(cache))
    return run_mypy(cache, "mypy", *options, str(path))


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
    expected = {
        number: mark[1].split(", ")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (mark := re.search(r"# expect: ([\w, -]+)$", line))
    }

    done = strict(cache, path)

    found: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        error = re.match(r".*rejected\.py:(\d+): error: .*\[([\w-]+)\]$", line)
        if error:
            found.setdefault(int(error[1]), []).append(error[2])
    assert found.keys() == expected.keys(), done.stdout
    for number, codes in found.items():
        assert set(codes) <= set(expected[number]), done.stdout


def test_package_is_marked_as_typed(package: Path) -> None:
    assert (package / "py.typed").exists()


def test_every_compiled_module_has_a_stub(package: Path) -> None:
    compiled = {path.parent / path.name.split(".")[0] for path in package.rglob("*.so")}

    assert len(compiled) > 30
    assert {path for path in compiled if not path.with_suffix(".pyi").exists()} == set()
