"""The report on a build, and on a librdkafka without our patches."""

from __future__ import annotations

import json
import platform
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixture_types import RunScript

import cykafka
from cykafka._core import build_info as _build_info

pytestmark = pytest.mark.ours
PACKAGE = Path(cykafka.__file__).parent


def test_build_info_names_versions_and_the_library() -> None:
    info = cykafka.build_info()
    assert info["cykafka"] == cykafka.version()
    assert info["librdkafka"] == cykafka.libversion()[0]
    assert info["librdkafka_path"] == str(PACKAGE / "librdkafka.so.1")
    assert info["librdkafka_source"] in {"release", "debian", "npm", "CYKAFKA_LIBRDKAFKA_SOURCE"}
    assert re.fullmatch(r"[0-9a-f]{64}", info["librdkafka_sha256"])
    assert info["missing_patches"] == []
    assert len(info["patches"]) == len(set(info["patches"])) >= 3
    assert {"ssl", "sasl_gssapi", "zstd"} <= set(info["features"])
    assert platform.python_version() in info["python"]


def test_import_of_a_patched_build_is_silent_and_does_not_load_build_info(
    run_script: RunScript,
) -> None:
    done = run_script("import sys; print('cykafka._core.build_info' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_foreign_library_warns_once(
    run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens if the loader finds a system library first."""
    shutil.copy(PACKAGE / "librdkafka.so.1", tmp_path)
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "librdkafka.so.1"))
    done = run_script(
        """
        import cykafka.admin, cykafka.testing
        info = kafka.build_info()
        print(info["librdkafka_source"], info["librdkafka_sha256"], info["patches"],
              len(info["missing_patches"]))
        """
    )
    assert done.stdout == f"system None [] {len(cykafka.build_info()['patches'])}\n"
    assert done.stderr.count("RuntimeWarning") == 1, done.stderr
    for words in (str(tmp_path), "close() hangs", "crashes", "CYKAFKA_LIBRDKAFKA=bundled"):
        assert words in done.stderr


@pytest.fixture
def unpatched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A build with the system's library and one patch, which upstream fixed in a version."""

    def unpatched(fixed_in: str | None) -> None:
        facts: dict[str, Any] = {
            "kind": "system",
            "source": "pkg-config",
            "sha256": None,
            "patches": [],
            "known_patches": {"0001-it": {"effect": "it hangs", "fixed_in": fixed_in}},
        }
        (tmp_path / "facts.json").write_text(json.dumps(facts))
        monkeypatch.setattr(_build_info, "_FACTS", tmp_path / "facts.json")
        monkeypatch.setattr(_build_info, "is_patched", lambda: False)

    return unpatched


@pytest.mark.parametrize("fixed_in", [None, "999.0.0"])
def test_unpatched_system_library_warns(
    unpatched: Callable[..., None], fixed_in: str | None
) -> None:
    unpatched(fixed_in)
    with pytest.warns(
        RuntimeWarning, match=r"librdkafka \S+ \(/.*\) lacks cykafka's patches: it hangs"
    ):
        _build_info.warn_unless_patched()
    assert cykafka.build_info()["missing_patches"] == ["0001-it"]


def test_system_library_with_the_upstream_fix_does_not_warn(
    unpatched: Callable[..., None],
) -> None:
    unpatched(cykafka.libversion()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _build_info.warn_unless_patched()
    assert cykafka.build_info()["missing_patches"] == []
