"""Rules about single values of the wire: names, whole numbers, words out of a closed set.

Each finds what is wrong and answers something harmless, so that reading can go on.
Must not raise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from federation.codec.timestamps import TIMESTAMP_RULE, seconds_from_timestamp
from federation.codec.violations import Violations
from federation.model.resources import is_qualified_name

MAX_REPLICAS: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
# Ten years of 365 days: longer is for ever, which is said by no lease at all.
MAX_LEASE_SECONDS: Final = 10 * 365 * 86_400
# Karmada's limit: the name also becomes part of namespaces and secrets.
MAX_CLUSTER_NAME: Final = 48
# Kinds of resources that a replica may ask for, and that a node pool may be told in.
MAX_RESOURCES: Final = 64

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]{1,19}", re.ASCII)

Word = TypeVar("Word", bound=StrEnum)


def cluster_name(name: str, path: str, found: Violations) -> str:
    """A DNS-1123 label of at most 48 characters."""
    return _dns_name(name, path, found, limit=MAX_CLUSTER_NAME, dots=False)


def namespace_name(name: str, path: str, found: Violations) -> str:
    """A DNS-1123 label, or nothing for what lives in no namespace."""
    return _dns_name(name, path, found, limit=63, dots=False) if name else name


def object_name(name: str, path: str, found: Violations) -> str:
    """A DNS-1123 subdomain."""
    return _dns_name(name, path, found, limit=253, dots=True)


def is_cluster_name(name: str) -> bool:
    """Whether a member cluster may have this name."""
    return len(name) <= MAX_CLUSTER_NAME and _LABEL.fullmatch(name) is not None


def required(text: str, path: str, found: Violations) -> str:
    if not text:
        found.add(path, "is required")
    return text


def replicas(number: int, path: str, found: Violations) -> int:
    """A count of replicas, as large as Kubernetes takes it."""
    return whole(number, path, found, least=0, most=MAX_REPLICAS)


def whole(number: int, path: str, found: Violations, *, least: int, most: int) -> int:
    if not least <= number <= most:
        found.add(path, f"must be from {least} to {most}, not {number}")
    return number


def amounts(given: Mapping[str, int], path: str, found: Violations) -> dict[str, int]:
    """Amounts in base units by resource name."""
    for name, amount in given.items():
        if not is_qualified_name(name):
            found.add(f"{path}[{name}]", "is not a resource name")
        whole(amount, f"{path}[{name}]", found, least=0, most=MAX_INT64)
    return dict(given)


def seconds(timestamp: Timestamp, path: str, found: Violations) -> float:
    """A time, in Unix seconds."""
    time = seconds_from_timestamp(timestamp)
    if time is None:
        found.add(path, TIMESTAMP_RULE)
        return 0.0
    return time


def optional_seconds(message: Message, field: str, path: str, found: Violations) -> float | None:
    """The time in a field, in Unix seconds; None where the field is not set."""
    return seconds(getattr(message, field), path, found) if message.HasField(field) else None


def revision(text: str, path: str, found: Violations) -> int:
    """A resourceVersion: ours are numbers, opaque to callers; empty is 0."""
    if not text:
        return 0
    if not _DIGITS.fullmatch(text) or int(text) > MAX_INT64:
        found.add(path, "is not one that was given out: send back what was read")
        return 0
    return int(text)


def size(message: Message, path: str, found: Violations, *, most_bytes: int) -> None:
    """Finds a message that would not leave room for others in an answer that holds many."""
    if (size_bytes := message.ByteSize()) > most_bytes:
        found.add(path, f"has {size_bytes} bytes: at most {most_bytes} are kept")


def choice(text: str, choices: type[Word], *, default: Word) -> Word:
    """Return the word of a closed set that the rules of the proto let pass."""
    return optional_choice(text, choices) or default


def optional_choice(text: str, choices: type[Word]) -> Word | None:
    """Return the word of a closed set that the rules of the proto let pass, or None for none."""
    if not text:
        return None
    members: Mapping[str, Word] = _members(choices)
    return members.get(text)


@cache
def _members(choices: type[StrEnum]) -> Mapping[str, Any]:
    return {choice.value: choice for choice in choices}


def word(text: str, choices: type[Word], path: str, found: Violations, *, default: Word) -> Word:
    """A word out of a closed set; nothing written means ``default``."""
    if not text:
        return default
    try:
        return choices(text)
    except ValueError:
        found.add(path, f"must be {_either(choices)}, not {text!r}")
        return default


def optional_word(text: str, choices: type[Word], path: str, found: Violations) -> Word | None:
    """A word out of a closed set, or None when nothing is written."""
    return word(text, choices, path, found, default=next(iter(choices))) if text else None


def distinct(keys: Iterable[str], path: str, found: Violations, *, field: str = "") -> None:
    """Finds keys that are there twice; empty ones are somebody else's violation."""
    seen: set[str] = set()
    for position, key in enumerate(keys):
        if key and key in seen:
            found.add(f"{path}[{position}]{field}", f"{str(key)!r} is there already")
        seen.add(key)


def _dns_name(name: str, path: str, found: Violations, *, limit: int, dots: bool) -> str:
    labels = name.split(".") if dots else [name]
    if not name:
        found.add(path, "is required")
    elif len(name) > limit or not all(map(_LABEL.fullmatch, labels)):
        also = ", '-' and '.'" if dots else " and '-'"
        found.add(
            path,
            f"must be at most {limit} lower-case letters, digits{also}, "
            f"starting and ending with a letter or digit, not {name[:64]!r}",
        )
    return name


def _either(choices: type[StrEnum]) -> str:
    *most, last = (str(choice) for choice in choices)
    return f"{', '.join(most)} or {last}" if most else last
