"""The examples and tables in README and the guides, for the tests that check them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

# A block between fences; or lines that are indented, after an empty line.
_BLOCK = re.compile(
    r"^```(?P<kind>\w*)\n(?P<fenced>.*?)^```$"
    r"|(?<=\n\n)(?P<indented>(?: {4}[^\n]*\n|\n(?= {4}))+)",
    re.DOTALL | re.MULTILINE,
)
_INDENTED_LINES = re.compile(r"^ {4}", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.*)\n", re.MULTILINE)
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


class Example(NamedTuple):
    """A block of code: `kind` is the word behind its fence, or empty."""

    kind: str
    text: str


def read(page: str) -> str:
    """The text of a page, which is named by its path from the project's root."""
    return (ROOT / page).read_text(encoding="utf-8")


def examples(page: str) -> list[Example]:
    """All blocks of code of a page."""
    return [
        Example("", _INDENTED_LINES.sub("", found["indented"]))
        if found["indented"]
        else Example(found["kind"], found["fenced"])
        for found in _BLOCK.finditer(read(page))
    ]


def blocks(page: str, kind: str = "python") -> list[str]:
    """The blocks of a page that are of this kind."""
    return [example.text for example in examples(page) if example.kind == kind]


def example(page: str, words: str) -> str:
    """The one block of a page that has these words."""
    (found,) = (item.text for item in examples(page) if words in item.text)
    return found


def commands(text: str) -> list[list[str]]:
    """The commands of a block of shell commands, as lists of words."""
    # For shlex a comment begins with any #, also within a word.
    lines = re.sub(r"(?m)(^|\s)#.*", "", text.replace("\\\n", " ")).splitlines()
    return [words for line in lines if (words := shlex.split(line))]


def tables(page: str, title: str) -> list[list[list[str]]]:
    """The tables below a heading of a page: the cells of their rows, without those of the head."""
    _, *parts = _HEADING.split(read(page))
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    return [
        [[cell.strip() for cell in line.split("|")[1:-1]] for line in rows.splitlines()[2:]]
        for rows in _TABLE.findall(sections[title])
    ]


def names(cell: str) -> list[str]:
    """The words of a cell that are code."""
    return re.findall(r"`([^`]+)`", cell)
