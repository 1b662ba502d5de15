"""Texts of others, made safe to show: nothing in them acts on a terminal, a log or a page.

Pure. Must not shorten anything, nor know where it is shown.
"""

from __future__ import annotations

import re
from typing import Final

# Characters that take no room, and that Python counts as printable nevertheless: joiners, fillers,
# and the selectors that choose between forms of the character before.
_INVISIBLE: Final = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
)
_HAS_INVISIBLE: Final = re.compile(f"[{_INVISIBLE}]")


def is_printable(text: str) -> bool:
    """Return whether every character is visible, on one line, and runs from left to right."""
    return text.isprintable() and (text.isascii() or _HAS_INVISIBLE.search(text) is None)


def printable(text: str) -> str:
    r"""Return the text on one line, with escapes such as ``\x1b`` as Python writes them.

    Escaped are control characters, line ends, blanks other than the space, direction marks, and
    characters without width.
    """
    if is_printable(text):
        return text
    return "".join(
        character if is_printable(character) else _escape(character) for character in text
    )


def printable_lines(text: str) -> str:
    """Return the text as ``printable`` does, but with its line ends and tabs."""
    return "\n".join(
        "\t".join(printable(part) for part in line.split("\t")) for line in text.split("\n")
    )


def printable_json(text: str) -> str:
    """Return an equivalent JSON document whose strings have printable characters and escapes only.

    Outside of strings JSON has plain characters only.
    """
    lines = text.split("\n")
    if all(map(is_printable, lines)):
        return text
    return "\n".join(
        "".join(
            character if is_printable(character) else _json_escape(character) for character in line
        )
        for line in lines
    )


def _escape(character: str) -> str:
    # repr does not escape what Python regards as printable.
    number = ord(character)
    if character in "\n\r\t":
        return repr(character)[1:-1]
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
