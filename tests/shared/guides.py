"""The Python in README and the guides, for the tests that run it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    """The Python blocks of a page, which is named by its path from the project's root."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
