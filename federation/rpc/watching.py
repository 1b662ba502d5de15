"""Watches over the wire: events as messages that fit, written no faster than they are taken.

Must not read what is watched: ``services.watches`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from federation.codec.bindings import binding_to_message
from federation.codec.clusters import cluster_to_message
from federation.codec.waits import wait_to_message
from federation.model.access import EVERYTHING, Scope
from federation.model.errors import Conflict, Unavailable
from federation.model.placement import BindingName
from federation.rpc.calls import Context, caller_if_known
from federation.rpc.pages import fitting
from federation.rpc.visibility import event_as_seen, events_as_seen
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ClusterChanged, ReportAdvanced
from federation.services.ports import Clock, Store
from federation.services.watching.resumes import RELIST
from federation.services.watching.subjects import (
    BindingEvent,
    BindingSubject,
    ClusterEvent,
    ClusterSubject,
)
from federation.services.watching.watches import Watches, WatchPace
from federation.v1 import clusters_pb2, resource_pb2, scheduling_pb2

# A watcher that takes nothing for so long is not there any more.
WRITE_SECONDS = 60.0

K = TypeVar("K")
M = TypeVar("M", bound=Message)
# An event as a caller may see it, None where it may not.
SeenEvents: TypeAlias = Callable[[M], M | None]


def binding_watches(
    store: Store, following: Following, fleet: FleetOwner, pace: WatchPace | None
) -> Watches[BindingName, scheduling_pb2.BindingEvent]:
    """Of bindings, by namespace."""

    def written(event: BindingEvent) -> scheduling_pb2.BindingEvent:
        return binding_event(event, following.history)

    subject = BindingSubject(store, fleet, written, _size)
    return Watches(store, following, subject, pace)


def cluster_watches(
    store: Store, following: Following, fleet: FleetOwner, clock: Clock, pace: WatchPace | None
) -> Watches[str, clusters_pb2.ClusterEvent]:
    """Of clusters: told of what is applied by ``fleet.observe``, too."""
    subject = ClusterSubject(fleet, cluster_events(clock), _size)
    watches = Watches(store, following, subject, pace)
    fleet.observe(watches.changed, ReportAdvanced, ClusterChanged)
    return watches


async def serve_watch(
    watches: Watches[K, M],
    asked: tuple[str, str],
    context: Context,
    respond: Callable[[Sequence[M], str], Message],
    seen: SeenEvents[M] | None,
) -> None:
    """Writes responses about a (scope, resource version) until the watch or the call ends.

    ``seen`` leaves out events that the caller may not see; None: it may see all.
    """
    scope, resume = asked
    async with aclosing(watches.watch(scope, resume, _actor())) as messages:
        async for told in messages:
            left = list(told.events)
            if seen is not None:
                left = [event for event in map(seen, left) if event is not None]
            while len(events := fitting(left)) < len(left):
                # Not all is told yet: resume from before it.
                await _write(context, respond(events, resume))
                left = left[len(events) :]
                await asyncio.sleep(watches.interval_seconds)
            resume = told.resource_version
            await _write(context, respond(events, resume))


def _actor() -> str:
    """Whose watches count together."""
    principal = caller_if_known()
    return "" if principal is None else principal.actor


def bindings_seen(scope: Scope) -> SeenEvents[scheduling_pb2.BindingEvent] | None:
    """Events of bindings in the scope; None where that is all of them, with all that they say."""
    if scope == EVERYTHING:
        return None
    return events_as_seen(scope, lambda event: event.binding.metadata.namespace)


def clusters_seen(scope: Scope) -> SeenEvents[clusters_pb2.ClusterEvent] | None:
    """Events of clusters in the scope; None where that is all of them, with all that they say.

    One that lost its labels, or was deleted and has none any more, is told of as deleted.
    """
    if scope == EVERYTHING:
        return None
    told = set[str]()

    def seen(event: clusters_pb2.ClusterEvent) -> clusters_pb2.ClusterEvent | None:
        name = event.cluster.metadata.name
        if scope.sees_cluster(name):
            told.add(name)
            return event_as_seen(event, scope)
        if name not in told:
            return None
        told.discard(name)
        gone = clusters_pb2.ClusterEvent(type=resource_pb2.EVENT_TYPE_DELETED)
        gone.cluster.metadata.name = name
        return gone

    return seen


def bindings_response(
    events: Sequence[scheduling_pb2.BindingEvent], resource_version: str
) -> scheduling_pb2.WatchBindingsResponse:
    """Without events: a bookmark."""
    bookmark = scheduling_pb2.BindingEvent(type=resource_pb2.EVENT_TYPE_BOOKMARK)
    return scheduling_pb2.WatchBindingsResponse(
        events=events or [bookmark], resource_version=resource_version
    )


def clusters_response(
    events: Sequence[clusters_pb2.ClusterEvent], resource_version: str
) -> clusters_pb2.WatchClustersResponse:
    """Without events: a bookmark."""
    bookmark = clusters_pb2.ClusterEvent(type=resource_pb2.EVENT_TYPE_BOOKMARK)
    return clusters_pb2.WatchClustersResponse(
        events=events or [bookmark], resource_version=resource_version
    )


def binding_event(event: BindingEvent, history: str) -> scheduling_pb2.BindingEvent:
    """As callers see it, with versions of that history of the database."""
    if event.binding is None:
        names = resource_pb2.ObjectMeta(namespace=event.namespace, name=event.name, uid=event.uid)
        return scheduling_pb2.BindingEvent(
            type=resource_pb2.EVENT_TYPE_DELETED,
            binding=resource_pb2.ResourceBinding(metadata=names),
        )
    return scheduling_pb2.BindingEvent(
        type=resource_pb2.EVENT_TYPE_UPDATED,
        binding=binding_to_message(event.binding, history),
        decision_id=event.decision_id,
        promises=[
            scheduling_pb2.ClusterPromise(cluster=cluster, certificate=certificate)
            for cluster, certificate in event.certificates.items()
        ],
        wait=wait_to_message(event.wait) if event.wait else None,
    )


def cluster_events(clock: Clock) -> Callable[[ClusterEvent], clusters_pb2.ClusterEvent]:
    """How clusters are told of, stale by this clock."""

    def written(event: ClusterEvent) -> clusters_pb2.ClusterEvent:
        if event.view is None:
            return clusters_pb2.ClusterEvent(
                type=resource_pb2.EVENT_TYPE_DELETED,
                cluster=resource_pb2.Cluster(metadata=resource_pb2.ObjectMeta(name=event.name)),
            )
        view = event.view
        silent = view.presence.is_silent_at(clock.now())
        return clusters_pb2.ClusterEvent(
            type=resource_pb2.EVENT_TYPE_UPDATED,
            cluster=cluster_to_message(
                view.state,
                view.presence,
                silent=silent,
                overcommitted=view.overcommitted,
                careful_reserve=view.careful_reserve,
                promised=view.promised,
            ),
        )

    return written


def _size(event: Message) -> int:
    return event.ByteSize()


async def _write(context: Context, response: Message) -> None:
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await context.write(response)
    except TimeoutError as error:
        raise Conflict("the watcher takes nothing: list again", reason=RELIST) from error
    except (grpc.RpcError, grpc.aio.BaseError) as error:
        raise Unavailable("the watcher's stream broke") from error
