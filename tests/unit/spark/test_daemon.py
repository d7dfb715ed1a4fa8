"""The daemon of Python workers. The tests in tests/spark run with it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

pytest.importorskip("pyspark")

from cykafka.spark import daemon


@pytest.mark.parametrize("is_fixed", [True, False])
def test_directories_of_sparks_archives_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fixed: bool
) -> None:
    path = str(tmp_path / "library.zip")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("first.py", "")
    importer = zipimporter(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("second.py", "")
    if is_fixed:
        monkeypatch.setattr(daemon, "_FIXED", {path})

    daemon._invalidate_caches(importer)

    assert importer.find_spec("first") is not None
    assert (importer.find_spec("second") is None) == is_fixed
