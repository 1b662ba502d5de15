"""Watches: the events of one stream in their order, initial state and bookmarks included.

Must not write to sockets; ``lab.kubeapi.server`` does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from lab.kubeapi.listing import Selector, selector, version_asked
from lab.kubeapi.resources import Document, Resource
from lab.kubeapi.state import Change, Cluster, at_version
from lab.kubeapi.statuses import Cause, expired, invalid_options, too_large_version

DEFAULT_TIMEOUT_SECONDS: Final = 1800.0
BOOKMARK_INTERVAL_SECONDS: Final = 60.0
# Bookmarks come once more, so long before the end.
LAST_BOOKMARK_SECONDS: Final = 1.5
TOO_LARGE_VERSION_SECONDS: Final = 3.0
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """What a watch asked for. ``version`` None means unset."""

    version: int | None
    bookmarks: bool
    initial_events: bool
    timeout_seconds: float
    matches: Selector
    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The first events, and the version after which changes follow; None when none do.

    ``known_version`` is the newest that the watcher knows of once it has caught up with what
    happened before it came: a bookmark has to be newer.
    """

    events: list[Document]
    position: int | None = None
    known_version: int = 0


def watch_options(resource: Resource, namespace: str, query: Mapping[str, str]) -> WatchOptions:
    """Read the query. Raises Refused for combinations the server refuses."""
    initial_events = query.get("sendInitialEvents") == "true"
    if initial_events and query.get("resourceVersionMatch") != "NotOlderThan":
        message = (
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        )
        raise invalid_options(
            "ListOptions",
            Cause(reason="FieldValueForbidden", message=message, field="resourceVersionMatch"),
        )
    return WatchOptions(
        version=version_asked(query),
        bookmarks=query.get("allowWatchBookmarks") in ("true", "True", "1"),
        initial_events=initial_events,
        timeout_seconds=float(query.get("timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS),
        matches=selector(resource, query.get("fieldSelector", ""), query.get("labelSelector", "")),
        prefix=f"{namespace}/" if namespace else "",
    )


class Pulse:
    """Wakes a stream when the cluster changes, when a test wants something of it, or in time.

    Tests set what they want, then wake: a bookmark, the end, or bytes to be said as they are.
    """

    def __init__(self, second: float) -> None:
        self.second = second
        self.bookmark_wanted = False
        self.is_ended = False
        self.said: deque[bytes] = deque()
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """May be called from any thread, also when the server has gone."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    def now(self) -> float:
        """The loop's time in the server's seconds."""
        return self._loop.time() / self.second

    async def wait(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - self.now()) * self.second):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds * self.second)


async def wait_for_version(cluster: Cluster, version: int, pulse: Pulse) -> Document | None:
    """Wait for a version that is still to come; the Status when it does not."""
    if cluster.watch_cache:
        deadline = pulse.now() + TOO_LARGE_VERSION_SECONDS
        while cluster.version < version and pulse.now() < deadline:
            await pulse.wait(deadline)
    if cluster.version >= version:
        return None
    return too_large_version(version, cluster.version, with_retry=cluster.watch_cache)


async def opening(
    cluster: Cluster, resource: Resource, options: WatchOptions, pulse: Pulse
) -> Opening:
    """How the stream begins, as of now."""
    if options.initial_events and options.version:
        status = await wait_for_version(cluster, options.version, pulse)
        if status is not None:
            return Opening(events=[{"type": "ERROR", "object": status}])
    if options.version and not options.initial_events:
        if options.version < cluster.window_version:
            return Opening(events=[{"type": "ERROR", "object": _too_old(cluster, options.version)}])
        # Every change of the kind counts, also those that the selector or the namespace hides.
        caught_up = [
            change.version
            for change in cluster.changes_after(options.version)
            if change.resource is resource
        ]
        known_version = max([options.version, *caught_up])
        return Opening(events=[], position=options.version, known_version=known_version)
    with cluster.lock:
        if options.version is None:
            position = cluster.read_consistently(resource)
        else:
            position = max(options.version, cluster.known_version(resource))
        initial = [
            {"type": "ADDED", "object": _kinded(resource, document)}
            for key, document in cluster.state(resource).items()
            if key.startswith(options.prefix) and options.matches(document)
        ]
    if options.initial_events and options.bookmarks:
        initial.append(_bookmark(resource, position, annotations={INITIAL_EVENTS_END: "true"}))
    return Opening(events=initial, position=position, known_version=position)


async def events(
    cluster: Cluster, resource: Resource, options: WatchOptions, opened: Opening, pulse: Pulse
) -> AsyncIterator[Document | bytes]:
    """The stream until its time is up."""
    for first in opened.events:
        yield first
    if opened.position is None:
        return
    end = pulse.now() + options.timeout_seconds
    position, told = opened.position, opened.known_version
    last_bookmark = end - LAST_BOOKMARK_SECONDS
    next_bookmark = min(pulse.now() + BOOKMARK_INTERVAL_SECONDS, last_bookmark)
    while True:
        # Wishes that come from here on are for the next turn.
        bookmark_wanted, pulse.bookmark_wanted = pulse.bookmark_wanted, False
        is_ended = pulse.is_ended
        with cluster.lock:
            changes = cluster.changes_after(position)
            # A bookmark tells no version whose changes this stream has still to tell.
            known = position if is_ended and changes else cluster.known_version(resource)
        # What changed after the watch was to end belongs to the next watch.
        for change in () if is_ended else changes:
            position = change.version
            event = _event(resource, change, options)
            if event is not None:
                yield event
        is_due = pulse.now() >= next_bookmark
        if is_due:
            is_last = next_bookmark >= last_bookmark
            following = min(next_bookmark + BOOKMARK_INTERVAL_SECONDS, last_bookmark)
            next_bookmark = end if is_last else following
        if options.bookmarks and (is_due or bookmark_wanted) and known > told:
            told = known
            yield _bookmark(resource, known)
        while pulse.said:
            yield pulse.said.popleft()
        if is_ended or pulse.now() >= end:
            return
        await pulse.wait(min(next_bookmark, end))


def _event(resource: Resource, change: Change, options: WatchOptions) -> Document | None:
    """What this stream says of a change: a selector turns leaving into DELETED."""
    if change.resource is not resource or not change.key.startswith(options.prefix):
        return None
    before = change.before if change.before and options.matches(change.before) else None
    after = change.after if change.after and options.matches(change.after) else None
    if after is not None:
        kind = "MODIFIED" if before is not None else "ADDED"
        return {"type": kind, "object": _kinded(resource, after)}
    if before is not None:
        left = at_version(before, change.version)
        return {"type": "DELETED", "object": _kinded(resource, left)}
    return None


def _kinded(resource: Resource, document: Document) -> Document:
    return {**document, "kind": resource.kind, "apiVersion": resource.api_version}


def _bookmark(
    resource: Resource, version: int, annotations: Mapping[str, str] | None = None
) -> Document:
    metadata: Document = {"resourceVersion": str(version)}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    return {
        "type": "BOOKMARK",
        "object": {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": metadata,
            **resource.blank,
        },
    }


def _too_old(cluster: Cluster, version: int) -> Document:
    if cluster.watch_cache:
        return expired(f"too old resource version: {version} ({cluster.window_version})")
    return expired("The resourceVersion for the provided watch is too old.")
