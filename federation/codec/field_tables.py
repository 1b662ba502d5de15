"""Tables of the fields that types of other projects have, written as text.

Must not know any particular type.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeAlias

# By type name: field name to the name of its type, empty where anything may stand in it.
FieldTable: TypeAlias = Mapping[str, Mapping[str, str]]


def field_table(text: str) -> FieldTable:
    """One type a line; ``field=Type`` names the type of a field whose own fields are checked."""
    fields: dict[str, dict[str, str]] = {}
    for line in filter(None, text.splitlines()):
        type_name, _, words = line.partition(":")
        fields[type_name] = {}
        for word in words.split():
            field, _, field_type = word.partition("=")
            fields[type_name][field] = field_type
    return fields


def no_such_field(type_name: str, name: object, fields: Iterable[str]) -> str:
    """The rule that a field breaks which its type does not have."""
    close = difflib.get_close_matches(str(name), list(fields), n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{type_name} has no such field{hint}"
