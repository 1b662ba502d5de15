"""Pictures of figures in pairs, as SVG: a bar for what was, one for what would be.

Must not reckon anything; what others wrote is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from federation.model.printable import printable

_WIDTH, _LABEL, _ROW, _BAR, _TOP = 900, 260, 34, 12, 64
_MAX_CHARACTERS: Final = 36
_NAMESPACE: Final = "http://www.w3.org/2000/svg"
_RECORDED, _CHANGED = "#8a94a6", "#1f6feb"


def bars(
    title: str,
    pairs: Sequence[tuple[str, float, float]],
    words: tuple[str, str] = ("recorded", "what if"),
) -> str:
    """Draw a picture of two numbers for each label, as bars; ``words`` say what the numbers are."""
    height = _TOP + _ROW * len(pairs) + 16
    largest = max((max(numbers) for _, *numbers in pairs), default=0) or 1
    lines = [
        f'<svg xmlns="{_NAMESPACE}" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(16, 26, title, weight="bold", size=16),
        *_legend(16, words[0], _RECORDED),
        *_legend(116, words[1], _CHANGED),
    ]
    for position, pair in enumerate(pairs):
        lines += _pair(position, *pair, largest)
    return "\n".join((*lines, "</svg>\n"))


def _legend(x: int, words: str, colour: str) -> Iterator[str]:
    yield f'<rect x="{x}" y="38" width="10" height="10" fill="{colour}"/>'
    yield _text(x + 16, 47, words)


def _pair(
    position: int, label: str, recorded: float, changed: float, largest: float
) -> Iterator[str]:
    y = _TOP + _ROW * position
    label = printable(label)
    if len(label) > _MAX_CHARACTERS:
        label = f"{label[: _MAX_CHARACTERS - 1]}…"
    yield _text(16, y + _BAR + 4, label)
    room = _WIDTH - _LABEL - 110
    for n, (value, colour) in enumerate(((recorded, _RECORDED), (changed, _CHANGED))):
        width, top = round(room * max(value, 0) / largest), y + n * (_BAR + 2)
        yield f'<rect x="{_LABEL}" y="{top}" width="{width}" height="{_BAR}" fill="{colour}"/>'
        yield _text(_LABEL + width + 6, top + _BAR - 1, f"{value:,.10g}", size=11)


def _text(x: int, y: int, text: str, *, weight: str = "normal", size: int = 13) -> str:
    style = f'font-weight="{weight}" font-size="{size}"'
    return f'<text x="{x}" y="{y}" {style} fill="#1c2128">{escape(text)}</text>'
