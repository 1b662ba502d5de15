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
_FEWEST: Final = min(_MOST.values())
# Of all lists and maps in a binding, or in a request for estimates, together.
MOST_PARTS: Final = 50_000


def refuse_too_many(message: Message, path: str, found: Violations) -> None:
    """Finds lists and maps of a message that hold too many, and a message that holds too much."""
    # A part takes a byte at least: of what is small nothing has to be counted, as mostly.
    is_small = message.ByteSize() <= MOST_PARTS
    parts = _parts(message, path, found, _FEWEST if is_small else -1)
    if parts > MOST_PARTS:
        found.add(path, f"holds {parts} parts: at most {MOST_PARTS} are looked at")


def refuse_long(message: Any, names: Iterable[str], found: Violations) -> None:
    """Finds those of a message's own lists and maps that hold more than MOST."""
    for name in names:
        count = len(getattr(message, name))
        if count > MOST:
            here = message.DESCRIPTOR.fields_by_name[name].json_name
            found.add(here, f"holds {count}: at most {MOST} are looked at")


def _parts(message: Message, path: str, found: Violations, skipped: int) -> int:
    """How many; messages of at most so many bytes are ``skipped``, and count nothing."""
    parts = 0
    for field, value in message.ListFields():
        inner = inner_message(field)
        if not field.is_repeated:
            if inner and _has_parts(inner) and value.ByteSize() > skipped:
                parts += _parts(value, joined(path, field.json_name), found, skipped)
            continue
        count = len(value)
        most = _MOST.get(field.name, MOST)
        if count > most:
            here = joined(path, field.json_name)
            found.add(here, f"holds {count}: at most {most} are looked at")
        elif inner and _has_parts(inner):
            here = joined(path, field.json_name)
            for position, each in enumerate(value):
                if each.ByteSize() > skipped:
                    parts += _parts(each, f"{here}[{position}]", found, skipped)
        parts += count
    return parts


@cache
def _has_parts(descriptor: Any) -> bool:
    """Whether a message may hold lists, maps or other messages. What comes in thousands, like
    tolerations, does not.
    """
    return any(field.is_repeated or inner_message(field) for field in fields_of(descriptor))
