"""The reports for librdkafka's issue tracker: the patch of each, and its program."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from email import message_from_string
from pathlib import Path

import pytest

import cykafka

VENDOR = Path(__file__).parents[2] / "vendor"
REPORTS = sorted((VENDOR / "reports").glob("*.md"))
PATCHES = sorted((VENDOR / "patches").glob("*.patch"))
TIMEOUT_S = 60

each_report = pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.stem)
needs_build_tools = pytest.mark.skipif(
    shutil.which("pkg-config") is None or shutil.which("cc") is None,
    reason="needs cc and pkg-config",
)
needs_patches = pytest.mark.skipif(
    not cykafka.build_info()["patches"], reason="the librdkafka in use is not the patched one"
)


def bug(patch: Path) -> str:
    """The field Bug of the patch's header, in one line."""
    header = message_from_string(patch.read_text(encoding="utf-8"))
    return " ".join(header["Bug"].split())


@pytest.fixture(scope="module")
def prefix() -> Path:
    """The patched library from the cache of the build."""
    settings = ("CYKAFKA_LIBRDKAFKA", "CYKAFKA_LIBRDKAFKA_SOURCE")
    found = subprocess.run(
        [sys.executable, str(VENDOR / "librdkafka.py")],
        env={name: value for name, value in os.environ.items() if name not in settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return Path(found.stdout.strip())


def run(*command: str | Path, **settings: str) -> None:
    """Run a program that must succeed within TIMEOUT_S."""
    done = subprocess.run(
        command,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_there_are_reports() -> None:
    assert REPORTS


@each_report
def test_report_attaches_the_patch_that_names_it(report: Path) -> None:
    (patch,) = (patch for patch in PATCHES if patch.name.startswith(f"{report.stem}-"))
    assert f"vendor/reports/{report.name}" in bug(patch)
    assert f"Attached: `{patch.name}`" in report.read_text(encoding="utf-8")


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.stem)
def test_patch_of_an_unreported_bug_has_a_report(patch: Path) -> None:
    if bug(patch).startswith("not reported"):
        assert VENDOR / "reports" / f"{patch.name[:4]}.md" in REPORTS


@pytest.mark.alone  # some programs count or time what librdkafka does
@needs_build_tools
@needs_patches
@each_report
def test_program_of_a_report_succeeds_with_the_patches(
    report: Path, prefix: Path, tmp_path: Path
) -> None:
    """Manual runs showed that each program fails with librdkafka's own release."""
    text = report.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```c\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    source = tmp_path / f"{report.stem}.c"
    source.write_text(program, encoding="utf-8")
    warnings = ("-Wall", "-Wextra", "-Werror", "-std=gnu11", "-isystem", prefix / "include")
    libraries = (f"-L{prefix}/lib", "-lrdkafka", "-lpthread")
    run("cc", *warnings, source, *libraries, "-o", tmp_path / "program")
    run(tmp_path / "program", LD_LIBRARY_PATH=f"{prefix}/lib")
