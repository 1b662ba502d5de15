"""Lists and events of one resource as values; an unreadable object harms no other.

Pure but for the log. Must not send requests, nor keep values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from estimator.kube.objects import (
    Event,
    Kinded,
    ListMetadata,
    Metadata,
    RawObject,
    RawStored,
    Status,
    WatchBookmark,
)
from estimator.unreadable import UNREADABLE
from federation.runtime.typed_values import from_json, json_decoder

# Skipped objects of one resource; nobody reads further lines of the log.
MAX_SKIPPED: Final = 1000
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})

Value = TypeVar("Value")
_Content = TypeVar("_Content")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched(Generic[Value]):
    """A resource to follow: its name for people, its path, and how its objects become values."""

    name: str
    path: str
    raw: type[RawStored]
    translate: Callable[[Any], Value]
    field_selector: str | None = None


class ObjectChange(NamedTuple, Generic[Value]):
    """One event of a watch. ``value`` is None when only the version has moved.

    ``ends_list`` marks the end of a streamed list. A tuple: there are many.
    """

    version: str
    value: Value | None = None
    is_removal: bool = False
    ends_list: bool = False


class Expired(Exception):
    """The version to go on from is too old, or of another history."""


class Garbled(Exception):
    """The answer is no API server's; a proxy's, or one that was cut off."""


class ObjectList(RawObject, frozen=True):
    """A page of objects that are not decoded yet."""

    metadata: ListMetadata
    items: list[msgspec.Raw]


@cache
def _event_of(raw: type[RawObject]) -> Any:
    """Return a type that is made once: msgspec never gives a type's memory back."""
    return msgspec.defstruct("Event", [("type", str), ("object", raw)], frozen=True)


class ObjectDecoder(Generic[Value]):
    """Decodes objects of one resource, and remembers the unreadable ones; these are bounded."""

    def __init__(self, watched: Watched[Value]) -> None:
        self._watched = watched
        self._decode = json_decoder(watched.raw).decode
        self._decode_event: Callable[[bytes], Any] = json_decoder(_event_of(watched.raw)).decode
        self._skipped: set[str] = set()

    @property
    def skipped(self) -> int:
        """The number of unreadable objects, as far as they were seen."""
        return len(self._skipped)

    def begin_list(self) -> None:
        """Forget the unreadable objects: a list shows all there are."""
        self._skipped.clear()

    def page(self, content: bytes) -> ObjectList:
        """Return a page. Raises Garbled."""
        return _decoded(content, ObjectList)

    def values(self, items: list[msgspec.Raw]) -> list[Value]:
        """Return the readable ones of some items."""
        values = (self._translated(self._raw(item)) for item in items)
        return [value for value in values if value is not None]

    def batches(self, lines: list[bytes]) -> Iterator[list[ObjectChange[Value]]]:
        """Yield the changes of some lines, at once. Raises Expired and Garbled behind good ones."""
        batch: list[ObjectChange[Value]] = []
        for line in lines:
            try:
                batch.append(self._change(line))
            except (Expired, Garbled):
                if batch:
                    yield batch
                raise
        if batch:
            yield batch

    def _change(self, line: bytes) -> ObjectChange[Value]:
        try:
            event = self._decode_event(line)
        except UNREADABLE:
            return self._unusual(line)
        version = event.object.metadata.resource_version
        if event.type not in _CHANGES or not version:
            return self._unusual(line)
        is_removal = event.type == "DELETED"
        if is_removal:
            self._unskip(event.object.metadata)
        return ObjectChange(version, self._translated(event.object), is_removal)

    def _unusual(self, line: bytes) -> ObjectChange[Value]:
        """Return an event without an object of this kind, or with an unreadable one.

        Raises Expired and Garbled for an event that is an error.
        """
        event = _decoded(line, Event)
        if event.type == "ERROR":
            status = _decoded(event.object, Status)
            if status.code in (410, 504):
                raise Expired(status.message)
            raise Garbled(f"{status.code} {status.message}")
        metadata = _decoded(event.object, WatchBookmark).metadata
        if not metadata.resource_version:
            raise Garbled(f"an event of type {event.type!r} without a version")
        if event.type in _CHANGES and self._raw(event.object) is None and event.type == "DELETED":
            raise Expired("an object that cannot be read is gone")
        return ObjectChange(
            version=metadata.resource_version,
            ends_list=INITIAL_EVENTS_END in (metadata.annotations or {}),
        )

    def _raw(self, item: msgspec.Raw) -> RawStored | None:
        """Return None for an object that no API server stores."""
        try:
            return self._decode(item)
        except UNREADABLE as error:
            self._skip(_key_of_unreadable(item), error)
            return None

    def _translated(self, raw: RawStored | None) -> Value | None:
        if raw is None:
            return None
        if not raw.metadata.name:
            self._skip(raw.metadata.uid or "", "it has no name")
            return None
        try:
            value = self._watched.translate(raw)
        except Exception as error:  # noqa: BLE001 - one object must not harm the others
            self._skip(_key(raw.metadata), error)
            return None
        self._unskip(raw.metadata)
        return value

    def _skip(self, key: str, why: object) -> None:
        if key in self._skipped or len(self._skipped) >= MAX_SKIPPED:
            return
        self._skipped.add(key)
        logger.warning("skipping one of the %s, %r: %s", self._watched.name, key, why)

    def _unskip(self, metadata: Metadata) -> None:
        """Note that the object is gone, or can be read by now."""
        if self._skipped:
            self._skipped.discard(_key(metadata))


class LineBuffer:
    """Whole lines of chunks that end anywhere; a partial last line is dropped."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk ends."""
        content = self._rest + chunk if self._rest else chunk
        lines = []
        start = 0
        # Lines are long: ``find`` is quicker at it than ``split``, which goes byte by byte.
        while (end := content.find(b"\n", start)) >= 0:
            if end > start:
                lines.append(content[start:end])
            start = end + 1
        self._rest = content[start:]
        return lines


def _key(metadata: Metadata) -> str:
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def _key_of_unreadable(item: msgspec.Raw) -> str:
    """Return its name, if that much can be read."""
    try:
        return _key(_decoded(item, Kinded).metadata)
    except Garbled:
        return ""


def _decoded(content: bytes | msgspec.Raw, kind: type[_Content]) -> _Content:
    """Replace bytes that are no text: they may be in one object of many, or in a label."""
    try:
        return from_json(content, kind)
    except UnicodeDecodeError:
        return _decoded(bytes(content).decode(errors="replace").encode(), kind)
    except UNREADABLE as error:
        raise Garbled(f"not the API server's JSON: {error}") from error
