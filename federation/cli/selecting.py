"""Which rows of a list are shown: ``-l`` by labels, ``--field-selector`` by what documents hold.

Must not know what is listed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from federation.model.errors import InvalidRequest

_KEY: Final = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"
_TERMS: Final = re.compile(r",(?![^(]*\))")
_SET: Final = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_PAIR: Final = re.compile(rf"({_KEY})\s*(==|=|!=)\s*([^=!(),]*)")
_PRESENCE: Final = re.compile(rf"(!?)\s*({_KEY})")
_FIELD: Final = re.compile(r"[\s.]*([^=!]+?)\s*(==|=|!=)\s*(.*?)\s*")
# Parts between commas that no backslash stands before.
_PARTS: Final = re.compile(r"(?:[^,\\]|\\.|\\$)+")
_ESCAPED: Final = re.compile(r"\\(.)")
# What a field is that its document leaves out.
_LEFT_OUT: Final = frozenset({"", "false", "0"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One of these values under a key, or none of them; no values: the key is there at all."""

    key: str
    values: frozenset[str] | None
    is_wanted: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.values is None:
            return (value is not None) is self.is_wanted
        return (value is not None and value in self.values) is self.is_wanted

    def holds_in(self, document: Mapping[str, Any]) -> bool:
        """The same of the field with the key as its path: ``status.agent.connected``."""
        values = self.values or frozenset()
        texts = field_texts(document, self.key.split("."))
        return (bool(values & texts) if texts else bool(values & _LEFT_OUT)) is self.is_wanted


def label_terms(text: str) -> list[Term]:
    """``tier=web,zone!=a,env in (dev,test),!legacy``, as in kubectl. Raises InvalidRequest."""
    return [_label_term(part.strip()) for part in _TERMS.split(text)] if text else []


def _label_term(text: str) -> Term:
    if found := _SET.fullmatch(text):
        values = frozenset(each.strip() for each in found[4].split(","))
        return Term(key=found[1], values=values, is_wanted=found[3] == "in")
    if found := _PAIR.fullmatch(text):
        return Term(key=found[1], values=frozenset({found[4].strip()}), is_wanted=found[3] != "!=")
    if found := _PRESENCE.fullmatch(text):
        return Term(key=found[2], values=None, is_wanted=not found[1])
    rule = f"{text!r} is none of key=value, key!=value, key in (a,b), key notin (a,b), key, !key"
    raise InvalidRequest.of("--selector", rule)


def field_terms(text: str) -> list[Term]:
    """``spec.region=eu,status.agent.connected!=true``, by the fields of ``-o json``.

    As in kubectl, a backslash before a comma, or another character, makes it a part of the value.
    Raises InvalidRequest.
    """
    return [_field_term(part) for part in filter(None, _PARTS.findall(text))]


def _field_term(text: str) -> Term:
    found = _FIELD.fullmatch(text)
    if found is None:
        rule = (
            f"{text!r} is neither field=value nor field!=value "
            r"(a comma in a value is written as \,)"
        )
        raise InvalidRequest.of("--field-selector", rule)
    value = _ESCAPED.sub(r"\1", found[3])
    return Term(key=found[1], values=frozenset({value}), is_wanted=found[2] != "!=")


def field_texts(value: Any, path: Sequence[str]) -> frozenset[str]:
    """What is at a path, as JSON writes it; of a list, what each of its items has there."""
    if isinstance(value, list):
        return frozenset().union(*(field_texts(each, path) for each in value))
    if not path:
        if isinstance(value, bool):
            return frozenset({str(value).lower()})
        return frozenset({str(value)}) if isinstance(value, str | int | float) else frozenset()
    if not isinstance(value, Mapping):
        return frozenset()
    # Keys of labels hold dots themselves.
    for end in range(len(path), 0, -1):
        if (key := ".".join(path[:end])) in value:
            return field_texts(value[key], path[end:])
    return frozenset()
