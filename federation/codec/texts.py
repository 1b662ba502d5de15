"""Rules about texts of the wire that people are shown: labels, annotations, uids, and free words.

Each finds what is wrong and answers what it was given, so that reading can go on.
Must not raise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from federation.codec.violations import Violations
from federation.model.printable import is_printable
from federation.model.resources import is_qualified_name

# Kubernetes' limits: of a label's value, and of all annotations of an object.
MAX_LABEL_VALUE: Final = 63
MAX_ANNOTATION_BYTES: Final = 256 * 1024
# What a region, a zone, a version or a kind is called; a DNS name has as many.
MAX_WORD: Final = 253
# More would only repeat what is wrong.
MAX_FOUND: Final = 16

_LABEL_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?", re.ASCII)
_UID: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_KEY_RULE: Final = (
    "a key is at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or "
    "digit, optionally after a DNS prefix and '/'"
)
_VALUE_RULE: Final = (
    f"must be empty or at most {MAX_LABEL_VALUE} letters, digits, '-', '_' and '.', starting and "
    "ending with a letter or digit"
)
_UID_RULE: Final = (
    "must be a uid: at most 63 lower-case letters, digits and '-', starting and ending with a "
    "letter or digit, as 8f6f4a2e-0c0b-4d52-9f0e-2f3f5c1d7a90"
)


def label_map(given: Mapping[str, str], path: str, found: Violations) -> dict[str, str]:
    """Labels, or a selector of them, as Kubernetes takes them."""
    before = len(found)
    for key, value in given.items():
        if not (_is_key(key) and _is_value(value)):
            label_key(key, f"{path}[{_shown(key)}]", found)
            label_value(value, f"{path}[{_shown(key)}]", found)
        if len(found) >= before + MAX_FOUND:
            break
    return dict(given)


def annotation_map(given: Mapping[str, str], path: str, found: Violations) -> dict[str, str]:
    """Annotations: keys as those of labels, any text for values."""
    before = len(found)
    for key in given:
        label_key(key.lower(), f"{path}[{_shown(key)}]", found)
        if len(found) >= before + MAX_FOUND:
            break
    size_bytes = sum(len(key.encode()) + len(value.encode()) for key, value in given.items())
    if size_bytes > MAX_ANNOTATION_BYTES:
        found.add(path, f"have {size_bytes} bytes: at most {MAX_ANNOTATION_BYTES} are kept")
    return dict(given)


def label_key(key: str, path: str, found: Violations) -> str:
    if not _is_key(key):
        found.add(path, _KEY_RULE)
    return key


def label_value(value: str, path: str, found: Violations) -> str:
    if not _is_value(value):
        found.add(path, f"{_VALUE_RULE}, not {_shown(value)!r}")
    return value


def uid(text: str, path: str, found: Violations) -> str:
    """The uid of a Kubernetes object."""
    if not _UID.fullmatch(text):
        found.add(path, f"{_UID_RULE}; it is {_shown(text)!r}" if text else "is required")
    return text


def word(text: str, path: str, found: Violations, *, most: int = MAX_WORD) -> str:
    """Something that is called somehow: printable, on one line, and not long."""
    if len(text) > most or not is_printable(text):
        rule = f"must be at most {most} printable characters"
        found.add(path, f"{rule}, not {len(text)}" if len(text) > most else rule)
    return text


def words(given: Iterable[str], path: str, found: Violations) -> tuple[str, ...]:
    """Words in a list."""
    return tuple(word(text, f"{path}[{position}]", found) for position, text in enumerate(given))


@lru_cache(maxsize=4096)
def _is_key(key: str) -> bool:
    return is_qualified_name(key)


def _is_value(value: str) -> bool:
    return len(value) <= MAX_LABEL_VALUE and _LABEL_VALUE.fullmatch(value) is not None


def _shown(text: str) -> str:
    return text if len(text) <= MAX_LABEL_VALUE else f"{text[: MAX_LABEL_VALUE - 3]}..."
