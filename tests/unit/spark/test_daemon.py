"""The daemon of Python workers. The tests in tests/spark run with it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

pytest.importorskip("pyspark")

import pyspark

from cykafka.spark import daemon

HOME = Path(pyspark.__file__).parent
SPARKS = [*HOME.glob("python/lib/*.zip"), *HOME.glob("jars/spark-core_*.jar")]


@pytest.mark.parametrize("name", ["library.zip", *(path.name for path in SPARKS)])
def test_directories_of_sparks_archives_are_read_once(tmp_path: Path, name: str) -> None:
    assert len(SPARKS) == 3
    path = str(tmp_path / name)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("first.py", "")
    importer = zipimporter(path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("second.py", "")

    daemon._invalidate_caches(importer)

    assert importer.find_spec("first") is not None
    assert (importer.find_spec("second") is None) == (name != "library.zip")
