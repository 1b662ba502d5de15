"""Sentences of plugins, agents and people, marked inside our own texts so that they can be hidden.

Pure. Must not decide who may read them: ``federation.codec.hidden_names`` does.
"""

from __future__ import annotations

import re
from typing import Final

OPENING: Final = "\N{LEFT DOUBLE QUOTATION MARK}"
CLOSING: Final = "\N{RIGHT DOUBLE QUOTATION MARK}"
HIDDEN_SENTENCE: Final = "a sentence for callers of all namespaces and clusters"

_MARKS: Final = {ord(OPENING): '"', ord(CLOSING): '"'}
_QUOTED: Final = re.compile(rf"{OPENING}[^{OPENING}{CLOSING}]+{CLOSING}")
# A text may have been cut within its quotation.
_QUOTATION: Final = re.compile(rf"{OPENING}[^{CLOSING}]*(?:{CLOSING}|$)")
# On a page quotation marks of ASCII and angle brackets are written as entities within texts.
_SHOWN_QUOTATION: Final = re.compile(rf"{OPENING}[^{CLOSING}<\"]*(?:{CLOSING}|(?=[<\"])|$)")
_HIDDEN: Final = f"{OPENING}{HIDDEN_SENTENCE}{CLOSING}"


def quoted(sentence: str) -> str:
    """Return the sentence between quotation marks; an empty or quoted one stays as it is."""
    if not sentence or _QUOTED.fullmatch(sentence):
        return sentence
    return f"{OPENING}{sentence.translate(_MARKS)}{CLOSING}"


def without_quotations(text: str) -> str:
    """Return the text with a placeholder for each quotation."""
    return _QUOTATION.sub(_HIDDEN, text) if OPENING in text else text


def page_without_quotations(page: str) -> str:
    """Return a page of HTML with escaped texts, with a placeholder for each quotation."""
    return _SHOWN_QUOTATION.sub(_HIDDEN, page) if OPENING in page else page
