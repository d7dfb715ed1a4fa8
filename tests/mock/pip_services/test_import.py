"""Errors and warnings at import about missing or conflicting packages."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.ours

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_error_names_missing_packages_and_what_to_install(run_script: Run) -> None:
    done = run_script(
        """
        import sys
        sys.modules["pip_services4_messaging"] = None
        import pip_services4_kafka
        """
    )

    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert "pip-services4-messaging" in done.stderr
    assert "pip install cykafka[pip-services]" in done.stderr


def test_import_warns_of_the_published_distribution(run_script: Run, tmp_path: Path) -> None:
    info = tmp_path / "pip_services4_kafka-0.0.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pip-services4-kafka\nVersion: 0.0.2\n"
    )
    script = """
        import sys, warnings
        sys.path.insert(0, sys.argv[1])
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", RuntimeWarning)
        import pip_services4_kafka
        """

    assert "pip uninstall pip-services4-kafka" in run_script(script, str(tmp_path)).stderr
    assert run_script(script, "/nowhere").stderr == ""


def test_client_needs_no_pip_services_packages(run_script: Run) -> None:
    done = run_script(
        """
        import sys
        assert not any(name.startswith("pip_services4") for name in sys.modules)
        """
    )

    assert done.returncode == 0, done.stderr


def test_extra_installs_what_the_documentation_imports() -> None:
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extra = set(project["optional-dependencies"]["pip-services"])
    text = (root / "docs/pip-services.md").read_text()
    imported = set(re.findall(r"^from (pip_services4_\w+)", text, re.MULTILINE))
    assert "pip_services4_container" in imported
    assert imported - {"pip_services4_kafka"} <= extra
