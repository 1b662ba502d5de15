from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.model.printable import is_printable, printable, printable_json, printable_lines

# What acts on a terminal, on the order of letters, or takes no room.
HOSTILE = {
    "\x1b[2J": "\\x1b[2J",
    "\x9b31m": "\\x9b31m",
    "a\rb": "a\\rb",
    "a\nb": "a\\nb",
    "\x7f\x00": "\\x7f\\x00",
    "\u202eexe": "\\u202eexe",
    "\u2066a\u2069": "\\u2066a\\u2069",
    "a\u200bb\ufeff": "a\\u200bb\\ufeff",
    "a\u2028b\u2029c\x85": "a\\u2028b\\u2029c\\x85",
    "a\u00a0b": "a\\xa0b",
    "x\u3164\ufe0f": "x\\u3164\\ufe0f",
    "\U000e0041": "\\U000e0041",
    "\udc80": "\\udc80",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_not_printable_is_spelled(text: str) -> None:
    assert printable(text) == HOSTILE[text]


@pytest.mark.parametrize("text", ["", "plain", "Zürich, 東京, Ελλάδα", "🚀", "C:\\temp"])
def test_what_is_printable_stays(text: str) -> None:
    assert printable(text) == text == printable_lines(text)


def test_lines_and_tabs_stay_where_they_may() -> None:
    assert printable_lines("a\tb\nc\x1bd\re") == "a\tb\nc\\x1bd\\re"


@given(st.text())
def test_every_text_becomes_printable(text: str) -> None:
    assert is_printable(printable(text))


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_means_what_it_meant(value: object) -> None:
    shown = printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(shown) == value
    assert all(is_printable(line) for line in shown.split("\n"))
