"""Bar charts as text, as SVG, and in an HTML page."""

from __future__ import annotations

import html as escaping

__all__ = ["bar", "html", "svg"]

_EIGHTHS = " ▏▎▍▌▋▊▉"
_ROW, _LABELS, _BARS, _NUMBERS, _TOP = 22, 260, 480, 120, 44
_MOST = 500


def bar(share: float, width: int = 20) -> str:
    """A bar of text: `share` (0 to 1) of `width` characters, to an eighth of a character."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    if share > 0:
        eighths = max(eighths, 1)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def svg(title: str, rows: list[tuple[str, int]]) -> str:
    """A chart of horizontal bars.

    Parameters
    ----------
    title : str
    rows : list of (str, int)
        Labels and numbers of at least 0, from top to bottom.
    """
    left_out = len(rows) - _MOST
    rows = rows[:_MOST]
    most = max((number for _, number in rows), default=0) or 1
    height = _TOP + _ROW * (len(rows) + (left_out > 0)) + 12
    width = _LABELS + _BARS + _NUMBERS
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="24" font-size="16" font-weight="bold">{escaping.escape(title)}</text>',
    ]
    for at, (label, number) in enumerate(rows):
        y = _TOP + at * _ROW
        length = _BARS * number / most
        lines += [
            f'<text x="{_LABELS - 8}" y="{y + 14}" text-anchor="end">'
            f"{escaping.escape(_short(label))}</text>",
            f'<rect x="{_LABELS}" y="{y + 2}" width="{length:.1f}" height="{_ROW - 6}" '
            'fill="#3b6ea8"/>',
            f'<text x="{_LABELS + length + 6:.1f}" y="{y + 14}">{number:,}</text>',
        ]
    if left_out > 0:
        y = _TOP + len(rows) * _ROW + 14
        lines.append(f'<text x="{_LABELS}" y="{y}">and {left_out} more</text>')
    return "\n".join([*lines, "</svg>\n"])


def _short(label: str, most: int = 36) -> str:
    # Keep both ends: topics often begin alike, and the partition is at the end.
    return label if len(label) <= most else f"{label[:12]}…{label[-(most - 13) :]}"


def html(title: str, report: list[str], drawn: str) -> str:
    """An HTML page with a drawing and the lines of a report."""
    name = escaping.escape(title)
    body = escaping.escape("\n".join(report))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{name}</title>\n<style>body{{font-family:sans-serif;margin:2em}}"
        "pre{overflow-x:auto}svg{max-width:100%}</style></head>\n"
        f"<body><h1>{name}</h1>\n{drawn}\n<pre>{body}</pre>\n</body></html>\n"
    )
