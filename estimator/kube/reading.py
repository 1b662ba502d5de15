"""Reads one resource of the API server: all there is, and the changes after a version.

Must not keep what it read, nor decide when to try again: ``estimator.kube.watch`` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import urllib3
from kubernetes.client.exceptions import ApiException

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

PAGE_SIZE: Final = 500
# Of one resource; who has more will not read further lines of the log.
MOST_SKIPPED: Final = 1000
# Chunks of a transfer that are no longer come whole.
MOST_READ_AT_ONCE: Final = 262_144
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
# Servers that do not know WatchList, or have it off, answer its parameters with these.
_WATCH_LIST_REFUSED: Final = frozenset({400, 422})

Value = TypeVar("Value")
_Content = TypeVar("_Content")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait for the API server, in seconds.

    The server ends a watch after ``watch`` and up to ``watch_shift`` more, which keeps watches
    from ending together; ``grace`` later it is taken for dead. Watches are short, as only their
    end and the next one's begin show of a quiet one that it is alive; so nobody waits longer than
    ``watch`` for the one object that is asked for between them.
    """

    connect: float = 5.0
    list_read: float = 60.0
    watch: float = 10.0
    watch_shift: float = 5.0
    grace: float = 5.0


DEFAULT_PATIENCE: Final = Patience()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched(Generic[Value]):
    """What to follow. ``method`` makes the client's listing method, with fresh credentials."""

    name: str
    method: Callable[[], Callable[..., Any]]
    raw: type[RawStored]
    translate: Callable[[Any], Value]
    field_selector: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[Value]):
    """Everything there is, and the version it was all true at."""

    values: list[Value]
    version: str


class ObjectChange(NamedTuple, Generic[Value]):
    """One event of a watch. ``value`` is None when only the version has moved.

    ``ends_list`` marks the end of a streamed list: what came before was all there is. A tuple:
    there are many.
    """

    version: str
    value: Value | None = None
    is_removal: bool = False
    ends_list: bool = False


class Expired(Exception):
    """The version to go on from is too old, or of another history."""


class Garbled(Exception):
    """The answer is not what an API server says; a proxy's, or one that was cut off."""


class Skipped:
    """Objects that cannot be read, each told of once; bounded, whatever there is."""

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._keys: set[str] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str, why: object) -> None:
        if key in self._keys or len(self._keys) >= MOST_SKIPPED:
            return
        self._keys.add(key)
        logger.warning("skipping one of the %s, %r: %s", self._resource, key, why)

    def discard(self, metadata: Metadata) -> None:
        """The object is gone, or can be read by now."""
        if self._keys:
            self._keys.discard(_key(metadata))

    def clear(self) -> None:
        self._keys.clear()


class _List(RawObject, frozen=True):
    metadata: ListMetadata
    items: list[msgspec.Raw]


@cache
def _event_of(raw: type[RawObject]) -> Any:
    """Made once: msgspec never gives a type's memory back."""
    return msgspec.defstruct("Event", [("type", str), ("object", raw)], frozen=True)


class ResourceReader(Generic[Value]):
    """Lists and watches for one thread; ``abort`` may be called from any other.

    All methods but that raise, besides what they say, the client's ApiException, urllib3's
    HTTPError, OSError, and Garbled.
    """

    def __init__(
        self, watched: Watched[Value], patience: Patience, uniform: Callable[[float], float]
    ) -> None:
        self._watched = watched
        self._patience = patience
        self._uniform = uniform
        self._decode = json_decoder(watched.raw).decode
        self._decode_event: Callable[[bytes], Any] = json_decoder(_event_of(watched.raw)).decode
        self._list_method: Callable[..., Any] | None = None
        self._answer: Any = None
        self._aborted = False
        self._streams_lists = True
        self._skipped = Skipped(watched.name)

    @property
    def skipped(self) -> int:
        """How many objects there are that cannot be read, as far as was seen."""
        return len(self._skipped)

    def renew_credentials(self) -> None:
        """Read them again for the next request: a token was rotated, or has expired."""
        self._list_method = None

    def abort(self) -> None:
        """Break off the stream that is being read, and any that follows."""
        self._aborted = True
        answer = self._answer
        if answer is not None:
            try:
                answer.shutdown()
            except (RuntimeError, OSError, ValueError):
                logger.debug("the watch of %s had ended already", self._watched.name)

    def list_all(self) -> Listed[Value]:
        """Everything, as one stream where the server can, else in pages. Raises Expired."""
        self._skipped.clear()
        if self._streams_lists:
            listed = self._streamed_list()
            if listed is not None:
                return listed
            logger.info("listing %s in pages: the server does not stream lists", self._watched.name)
            self._streams_lists = False
        return self._paged_list()

    def present_version(self) -> str:
        """The server's version now; asks for one object."""
        return self._page(self._patience.watch, limit=1).metadata.resource_version

    def changes(self, version: str) -> Iterator[list[ObjectChange[Value]]]:
        """Changes after ``version`` until the watch ends, as many at once as have come.

        Begins with none, once the watch is open. Raises Expired.
        """
        seconds = round(self._patience.watch + self._uniform(self._patience.watch_shift))
        with self._stream(seconds, resourceVersion=version) as batches:
            yield []
            yield from batches

    def _streamed_list(self) -> Listed[Value] | None:
        """None when the server did not stream the list to its end."""
        values: list[Value] = []
        seconds = round(self._patience.list_read)
        try:
            with self._stream(
                seconds, sendInitialEvents="true", resourceVersionMatch="NotOlderThan"
            ) as batches:
                for change in chain.from_iterable(batches):
                    if change.ends_list:
                        return Listed(values=values, version=change.version)
                    if change.value is not None:
                        values.append(change.value)
        except urllib3.exceptions.ReadTimeoutError:
            return None
        except ApiException as error:
            if error.status not in _WATCH_LIST_REFUSED:
                raise
        return None

    def _paged_list(self) -> Listed[Value]:
        values: list[Value] = []
        token: str | None = None
        while True:
            more = {"continue": token} if token else {}
            page = self._page(self._patience.list_read, limit=PAGE_SIZE, **more)
            for item in page.items:
                value = self._translated(self._raw(item))
                if value is not None:
                    values.append(value)
            token = page.metadata.continue_
            if not token:
                return Listed(values=values, version=page.metadata.resource_version)

    def _page(self, read_seconds: float, **query: Any) -> _List:
        answer = self._call(read_seconds, **query)
        return _decoded(answer.data, _List)

    @contextmanager
    def _stream(self, seconds: int, **query: Any) -> Iterator[Iterator[list[ObjectChange[Value]]]]:
        answer = self._call(
            seconds + self._patience.grace,
            watch="true",
            allowWatchBookmarks="true",
            timeoutSeconds=seconds,
            **query,
        )
        self._answer = answer
        if self._aborted:
            # The abort came too early to see this answer.
            self.abort()
        try:
            yield self._batches(answer)
        finally:
            answer.close()

    def _call(self, read_seconds: float, **query: Any) -> Any:
        if self._list_method is None:
            self._list_method = self._watched.method()
        if self._watched.field_selector is not None:
            query["fieldSelector"] = self._watched.field_selector
        try:
            return self._list_method(timeout=(self._patience.connect, read_seconds), **query)
        except ApiException as error:
            if error.status == 410:
                raise Expired(error.reason) from error
            raise

    def _batches(self, answer: Any) -> Iterator[list[ObjectChange[Value]]]:
        for lines in _lines(answer):
            batch = []
            broken: Expired | Garbled | None = None
            for line in lines:
                try:
                    batch.append(self._change(line))
                except (Expired, Garbled) as error:
                    # What came before it is true all the same.
                    broken = error
                    break
            if batch:
                yield batch
            if broken is not None:
                raise broken

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
            self._skipped.discard(event.object.metadata)
        return ObjectChange(version, self._translated(event.object), is_removal)

    def _unusual(self, line: bytes) -> ObjectChange[Value]:
        """An event without an object of this kind: an error, a bookmark, or what none can read."""
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
        """None for what no API server stores: one such object must not harm the others."""
        try:
            return self._decode(item)
        except UNREADABLE as error:
            self._skipped.add(_key_of_unreadable(item), error)
            return None

    def _translated(self, raw: RawStored | None) -> Value | None:
        if raw is None:
            return None
        if not raw.metadata.name:
            self._skipped.add(raw.metadata.uid or "", "it has no name")
            return None
        try:
            value = self._watched.translate(raw)
        except Exception as error:  # noqa: BLE001 - one object must not harm the others
            self._skipped.add(_key(raw.metadata), error)
            return None
        self._skipped.discard(raw.metadata)
        return value


def _key(metadata: Metadata) -> str:
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def _key_of_unreadable(item: msgspec.Raw) -> str:
    """Its name, if that much can be read."""
    try:
        return _key(_decoded(item, Kinded).metadata)
    except Garbled:
        return ""


def _decoded(content: bytes | msgspec.Raw, kind: type[_Content]) -> _Content:
    """Bytes that are no text are replaced: they may be in one object of many, or in a label."""
    try:
        return from_json(content, kind)
    except UnicodeDecodeError:
        return _decoded(bytes(content).decode(errors="replace").encode(), kind)
    except UNREADABLE as error:
        raise Garbled(f"not the API server's JSON: {error}") from error


def _lines(answer: Any) -> Iterator[list[bytes]]:
    """Whole lines, as they come: chunks of the transfer end anywhere. A partial last is dropped."""
    rest = b""
    for chunk in answer.stream(MOST_READ_AT_ONCE):
        content = rest + chunk if rest else chunk
        lines = []
        start = 0
        # Lines are long: ``find`` is quicker at it than ``split``, which goes byte by byte.
        while (end := content.find(b"\n", start)) >= 0:
            if end > start:
                lines.append(content[start:end])
            start = end + 1
        rest = content[start:]
        yield lines
