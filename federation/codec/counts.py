"""How many of anything a request may hold: more than anybody means, and little enough to read.

Must not read values. A request that passes is read, checked and decided in a bounded time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from google.protobuf.message import Message

from federation.codec.descriptors import fields_of, inner_message
from federation.codec.violations import Violations, joined

# By the name of a list or map; of everything else there may be MOST.
MOST: Final = 1_000
_MOST: Final = {
    "resource_request": 100,
    "allocatable": 100,
    "requests": 100,
    "node_selector": 100,
    "match_labels": 100,
    "tolerations": 200,
    "cluster_tolerations": 1_000,
    "node_selector_terms": 100,
    "match_expressions": 100,
    "match_fields": 100,
    "components": 100,
    "static_weight_list": 2_000,
    # Looked up by name, not compared one by one.
    "cluster_names": 10_000,
    "exclude": 10_000,
    "clusters": 10_000,
}
# Of all lists and maps in a binding, or in a request for estimates, together.
MOST_PARTS: Final = 50_000


def refuse_too_many(message: Message, path: str, found: Violations) -> None:
    """Finds lists and maps of a message that hold too many, and a message that holds too much."""
    parts = _parts(message, path, found)
    if parts > MOST_PARTS:
        found.add(path, f"holds {parts} parts: at most {MOST_PARTS} are looked at")


def refuse_long(message: Any, names: Iterable[str], found: Violations) -> None:
    """Finds those of a message's own lists and maps that hold more than MOST."""
    for name in names:
        count = len(getattr(message, name))
        if count > MOST:
            here = message.DESCRIPTOR.fields_by_name[name].json_name
            found.add(here, f"holds {count}: at most {MOST} are looked at")


def _parts(message: Message, path: str, found: Violations) -> int:
    parts = 0
    for field, value in message.ListFields():
        here = joined(path, field.json_name)
        inner = inner_message(field)
        if not field.is_repeated:
            parts += _parts(value, here, found) if inner and _has_parts(inner) else 0
            continue
        count = len(value)
        most = _MOST.get(field.name, MOST)
        if count > most:
            found.add(here, f"holds {count}: at most {most} are looked at")
        elif inner and _has_parts(inner):
            parts += _parts_of_each(value, here, found)
        parts += count
    return parts


def _parts_of_each(messages: Any, path: str, found: Violations) -> int:
    return sum(_parts(each, f"{path}[{position}]", found) for position, each in enumerate(messages))


@cache
def _has_parts(descriptor: Any) -> bool:
    """Whether a message may hold lists, maps or other messages. What comes in thousands, like
    tolerations, does not.
    """
    return any(field.is_repeated or inner_message(field) for field in fields_of(descriptor))
