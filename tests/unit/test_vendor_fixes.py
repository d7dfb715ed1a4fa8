"""Faults of librdkafka that are mended in the source before it is built."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

VENDOR = Path(__file__).parents[2] / "vendor"
TEXT = "before();\nanchor {\n    other();\n    wrong();\n}\nwrong();\n"


@pytest.fixture
def fixes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(VENDOR))
    import librdkafka_fixes

    monkeypatch.setattr(
        librdkafka_fixes,
        "FIXES",
        (librdkafka_fixes.Fix("a fault", "src/a.c", r"anchor \{", "wrong()", "right()"),),
    )
    return librdkafka_fixes


def write(tree: Path, text: str) -> Path:
    (tree / "src").mkdir()
    path = tree / "src" / "a.c"
    path.write_text(text)
    return path


def test_first_place_behind_the_anchor_is_mended(fixes: ModuleType, tmp_path: Path) -> None:
    path = write(tmp_path, TEXT)
    assert fixes.apply_all(tmp_path, required=True) == ["a fault"]
    assert path.read_text() == TEXT.replace("wrong()", "right()", 1)


@pytest.mark.parametrize("text", ["wrong();\nanchor {}\n", "wrong();\n", None])
def test_source_without_the_place(fixes: ModuleType, tmp_path: Path, text: str | None) -> None:
    path = None if text is None else write(tmp_path, text)
    assert fixes.apply_all(tmp_path, required=False) == []
    assert path is None or path.read_text() == text
    import librdkafka_source

    with pytest.raises(librdkafka_source.SourceError, match=r"src/a\.c has no place for: a fault"):
        fixes.apply_all(tmp_path, required=True)
