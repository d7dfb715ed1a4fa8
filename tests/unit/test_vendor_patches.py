"""The patches of librdkafka: their headers, and their exact application."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
HEADER = """\
Description: it fails
 Because of this.
Affects: 1.0.0 and later
Fixed-In: 1.2.0
Bug: https://example.org/1
Test: tests/test_a.py::test_b

"""
DIFF = """\
--- a/src/a.c
+++ b/src/a.c
@@ -1,3 +1,3 @@
 before();
-wrong();
+right();
 after();
"""
SOURCE = "before();\nwrong();\nafter();\n"


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "vendor"))
    import librdkafka_patches

    return librdkafka_patches


def write(folder: Path, source: str, patch: str = HEADER + DIFF) -> Path:
    (folder / "tree" / "src").mkdir(parents=True)
    (folder / "tree" / "src" / "a.c").write_text(source)
    (folder / "0001-it.patch").write_text(patch)
    return folder / "tree"


def test_each_patch_names_an_existing_test(patches: ModuleType) -> None:
    """Check only that the tests exist. Manual runs showed that each fails without its patch."""
    texts = [patch.path.read_text() for patch in patches.load_patches()]
    assert texts
    for text in texts:
        named = re.search(r"^Test: (\S+)::(\w+)$", text, re.MULTILINE)
        assert named is not None, text
        assert f" {named[2]}(" in (ROOT / named[1]).read_text()


def test_table_of_the_docs_has_each_patch(patches: ModuleType) -> None:
    page = (ROOT / "docs" / "librdkafka.md").read_text()
    rows = re.findall(r"^\| (\d{4}) \| .* \| (.*) \| (.*) \|$", page, re.MULTILINE)
    loaded = patches.load_patches()
    assert [number for number, _, _ in rows] == [patch.name[:4] for patch in loaded]
    for (number, fixed, report), patch in zip(rows, loaded, strict=True):
        assert (fixed == "yes") == (patch.fixed_in == "2.16.0"), number
        header = patch.path.read_text().partition("\n---")[0]
        names = [f"vendor/reports/{number}.md"] if report == f"`{number}.md`" else [report[1:5]]
        assert all(name in header for name in names), number


def test_header_has_name_effect_and_fixed_version(patches: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, SOURCE)
    (patch,) = patches.load_patches(tmp_path)
    assert (patch.name, patch.effect, patch.fixed_in) == ("0001-it", "it fails", "1.2.0")


def test_header_that_lacks_a_field_is_refused(patches: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, SOURCE, HEADER.replace("Test: ", "Tests: ") + DIFF)
    with pytest.raises(patches.VendorError, match=r"0001-it\.patch: its header lacks Test"):
        patches.load_patches(tmp_path)


@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
@pytest.mark.parametrize(
    ("source", "fits"),
    [
        (SOURCE, True),
        ("// another line\n" + SOURCE, False),
        (SOURCE.replace("before", "others"), False),
        (SOURCE.replace("wrong", "right"), False),
    ],
    ids=["as pinned", "moved", "other context", "applied already"],
)
def test_patch_applies_to_exactly_its_source(
    patches: ModuleType, tmp_path: Path, source: str, fits: bool
) -> None:
    tree = write(tmp_path, source)
    (patch,) = patches.load_patches(tmp_path)
    if fits:
        patch.apply(tree)
        assert (tree / "src" / "a.c").read_text() == source.replace("wrong", "right")
    else:
        with pytest.raises(patches.VendorError, match=r"0001-it\.patch does not apply"):
            patch.apply(tree)
