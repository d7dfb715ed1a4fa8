"""What a page of Textual shows, as text."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

_TEXT = "{http://www.w3.org/2000/svg}text"
_CELL = 12.2  # the width of a character in the picture


def screen_text(app: Any) -> str:
    """The page's lines, without colors and without blanks at their ends."""
    width, height = app.size
    cells = [[" "] * width for _ in range(height)]
    for element in ElementTree.fromstring(app.export_screenshot()).iter(_TEXT):
        line = re.search(r"-line-(\d+)\)$", element.get("clip-path", ""))
        if line is None:
            continue  # the frame's title
        column = round(float(element.get("x", 0)) / _CELL)
        text = (element.text or "").replace("\xa0", " ")
        cells[int(line[1])][column : column + len(text)] = text
    return "\n".join("".join(row).rstrip() for row in cells)
