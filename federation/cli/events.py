"""The verb ``events``: what happened to bindings and clusters, a line an event, the oldest first.

Must not reckon anything: decisions, the audit and the states of objects are put in one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli import output as show
from federation.cli.arguments import BINDING_KINDS, list_namespace_options, named_binding
from federation.cli.audit import objects_text, result_text
from federation.cli.clusters import taint_text
from federation.cli.decisions import outcome_word, shares_text
from federation.cli.history import (
    change_text,
    decisions_request,
    range_options,
    steps_of,
    why_text,
)
from federation.cli.kinds import show_list
from federation.cli.lists import ListColumn, ListedKind, Listing, listing_options
from federation.cli.waiting import lack_text, state_text
from federation.codec.timestamps import seconds_from_timestamp, timestamp_from_seconds
from federation.model.errors import NotFound, PermissionRefused
from federation.model.placement import binding_key
from federation.model.readable import plural
from federation.runtime.terminal import say
from federation.v1 import access_pb2, resource_pb2, scheduling_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from federation.client import Client

CLUSTER_KINDS: Final = ("cluster", "clusters", "cl")
# Records of the audit that are read for one answer, of which few may be about what is named.
MAX_RECORDS: Final = 1000
# The audit records a call in the transaction of its decision, by the database's clock.
MAX_APART_SECONDS: Final = 2.0
# Clocks of control planes may differ by less.
OVERLAP_SECONDS: Final = 10.0
EPILOG: Final = """Examples:

\b
fedctl events
fedctl events binding checkout-deployment -n shop
fedctl events binding/checkout-deployment -n shop -w
fedctl events cluster member1 --since 24h -o json
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """Something that happened to an object; ``key`` names its source, such as ``decision/ID``."""

    time: float
    key: str
    subject: str
    what: str
    why: str = ""
    by: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "time": timestamp_from_seconds(self.time).ToJsonString(),
            "object": self.subject,
            "what": self.what,
            "why": self.why,
            "by": self.by,
            "source": self.key,
        }


EVENTS: Final[ListedKind[HistoryEvent]] = ListedKind(
    word="",
    named=lambda event: event.key,
    document=HistoryEvent.document,
    columns=(
        ListColumn("TIME", lambda event, _: timestamp_from_seconds(int(event.time)).ToJsonString()),
        ListColumn(
            "AGE", lambda event, now: show.age(now - event.time), order=lambda event: -event.time
        ),
        # Names are long, and most events are of bindings.
        ListColumn("OBJECT", lambda event, _: event.subject.removeprefix("binding/")),
        ListColumn("WHAT", lambda event, _: event.what),
        ListColumn("WHY", lambda event, _: event.why or "-"),
        ListColumn("BY", lambda event, _: event.by or "-"),
    ),
    least=("TIME", "BY"),
    last=("AGE",),
    prose=("WHAT", "WHY", "BY"),
    empty="Nothing has happened.",
    is_record=True,
)
EVENTS_OF_ONE: Final = replace(
    EVENTS, columns=[column for column in EVENTS.columns if column.heading != "OBJECT"]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subjects:
    """The bindings or clusters that are asked about; none of both: all of a namespace, or all."""

    bindings: Sequence[tuple[str, str]] = ()
    clusters: Sequence[str] = ()
    namespace: str = ""

    @property
    def names_any(self) -> bool:
        return bool(self.bindings or self.clusters)

    def has(self, record: access_pb2.AuditRecord) -> bool:
        """Whether a record of the audit is about one of them."""
        if self.names_any:
            keys = (binding_key(*binding) for binding in self.bindings)
            return any(is_about_binding(record, key) for key in keys) or any(
                is_about_cluster(record, name) for name in self.clusters
            )
        within = f"{self.namespace}/"
        return not self.namespace or (
            record.method.startswith("Scheduling/")
            and any(name.startswith(within) for name in record.objects)
        )


@click.command(epilog=EPILOG)
@click.argument("objects", metavar="[KIND NAME... | KIND/NAME...]", nargs=-1)
@list_namespace_options
@range_options
@listing_options(EVENTS)
def events(
    objects: Sequence[str],
    namespace: str,
    since: str | None,
    until: str | None,
    limit: int,
    listing: Listing,
) -> None:
    """Show what happened to a binding, a cluster or all.

    The oldest of the newest events is first. They are decisions, calls of the audit, waits and
    evictions of bindings, and conditions and taints of clusters. BY is the caller, as far as you
    may read the audit.
    """
    subjects = subjects_of(objects, namespace)
    feed = EventFeed(subjects, decisions_request(since, until), limit)
    is_one = len(subjects.bindings) == 1 and not subjects.clusters
    show_list(EVENTS_OF_ONE if is_one else EVENTS, listing, feed.fetch)


def subjects_of(objects: Sequence[str], namespace: str) -> Subjects:
    """The objects, as ``KIND NAME...`` or ``KIND/NAME...``. Raises UsageError."""
    if not objects:
        return Subjects(namespace=namespace)
    kind, names = objects[0], objects[1:]
    if "/" in kind:
        kind, names = kind.partition("/")[0], [name.partition("/")[2] for name in objects]
        if strangers := [name for name in objects if name.partition("/")[0] != kind]:
            raise click.UsageError(f"{strangers[0]}: all objects of one call have one kind")
    if kind not in (*BINDING_KINDS, "rb", *CLUSTER_KINDS):
        raise click.UsageError(f"There is no kind {kind!r}. The kinds are bindings, clusters.")
    if not all(names) or not names:
        raise click.UsageError(f"say which {kind}: fedctl events {kind} NAME")
    if kind not in CLUSTER_KINDS:
        return Subjects(bindings=[named_binding(name, namespace) for name in names])
    if namespace:
        raise click.UsageError("-n: clusters are in no namespace")
    return Subjects(clusters=names)


class EventFeed:
    """The events of some objects; the audit is read once, and then only as far as it is new."""

    def __init__(
        self, subjects: Subjects, request: scheduling_pb2.ListDecisionsRequest, limit: int
    ) -> None:
        self._subjects, self._request, self._limit = subjects, request, limit
        self._may_read_audit = True
        self._records: list[access_pb2.AuditRecord] = []

    async def fetch(self, api: Client) -> Sequence[HistoryEvent]:
        """Events, the oldest first, at most so many. Raises NotFound."""
        subjects = self._subjects
        decisions: list[HistoryEvent] = []
        states: list[HistoryEvent] = []
        missing: NotFound | None = None
        for namespace, name in subjects.bindings:
            decisions += await self._decisions(api, namespace=namespace, name=name)
            try:
                states += binding_events(await api.get_binding(namespace, name))
            except NotFound as error:
                missing = error
        for name in subjects.clusters:
            decisions += await self._decisions(api, cluster=name)
            try:
                states += cluster_events(await api.get_cluster(name))
            except NotFound as error:
                missing = error
        if not subjects.names_any:
            decisions += await self._decisions(api, namespace=subjects.namespace)
            clusters = [] if subjects.namespace else await api.list_clusters()
            states += [event for cluster in clusters for event in cluster_events(cluster)]
        await self._read_audit(api)
        records = [record for record in self._records if subjects.has(record)]
        unasked = "control plane" if self._may_read_audit else ""
        events = [*with_callers(decisions, records, unasked), *states]
        if not events and missing is not None:
            # An object that was deleted may have events.
            raise missing
        return self._newest(events)

    def _newest(self, events: Iterable[HistoryEvent]) -> list[HistoryEvent]:
        """The newest events between the two times, the oldest first."""
        request = self._request
        since = _seconds(request.since) if request.HasField("since") else None
        until = _seconds(request.until) if request.HasField("until") else None
        by_key = {
            event.key: event
            for event in events
            if (since is None or event.time >= since) and (until is None or event.time < until)
        }
        return sorted(by_key.values(), key=lambda event: (event.time, event.key))[-self._limit :]

    async def _decisions(
        self, api: Client, namespace: str = "", name: str = "", cluster: str = ""
    ) -> list[HistoryEvent]:
        """Decisions about bindings, or those that give a cluster a share."""
        request = scheduling_pb2.ListDecisionsRequest()
        request.CopyFrom(self._request)
        request.namespace, request.name, request.cluster = namespace, name, cluster
        decisions = await api.list_decisions(request, limit=self._limit)
        if cluster:
            return [
                _decision_event(decision, _share_in(decision, cluster)) for decision in decisions
            ]
        by_binding: dict[tuple[str, str], list[scheduling_pb2.Decision]] = {}
        for decision in decisions:
            by_binding.setdefault((decision.namespace, decision.name), []).append(decision)
        return [
            _decision_event(step.decision, change_text(step.changes) if step.changes else "")
            for decisions_of_one in by_binding.values()
            for step in steps_of(decisions_of_one)
        ]

    async def _read_audit(self, api: Client) -> None:
        """Read the newest records; none for a caller who may not read them."""
        if not self._may_read_audit:
            return
        request = access_pb2.ListAuditRequest()
        if self._request.HasField("since"):
            request.since.CopyFrom(self._request.since)
        if self._request.HasField("until"):
            request.until.CopyFrom(self._request.until)
        if self._records:
            overlap = _seconds(self._records[0].time) - OVERLAP_SECONDS
            request.since.CopyFrom(timestamp_from_seconds(overlap))
        try:
            records = await api.list_audit(request, limit=MAX_RECORDS)
        except PermissionRefused as error:
            self._may_read_audit = False
            say(f"BY and calls without a decision are left out: {error.message}", err=True)
            return
        if len(records) == MAX_RECORDS:
            oldest = records[-1].time.ToJsonString()
            say(f"The audit is read back to {oldest}; --until shows calls before it.", err=True)
        new_ids = {record.id for record in records}
        retained = (record for record in self._records if record.id not in new_ids)
        self._records = [*records, *retained][:MAX_RECORDS]


def with_callers(
    decisions: Sequence[HistoryEvent], records: Sequence[access_pb2.AuditRecord], unasked: str
) -> Iterator[HistoryEvent]:
    """Yield decisions with their callers, and records that made no decision.

    A decision was made for the nearest call about its binding that the audit recorded within two
    seconds of it. ``unasked`` made those without such a call.
    """
    calls: dict[str, list[access_pb2.AuditRecord]] = {}
    for record in records:
        if record.method.startswith("Scheduling/") and record.result == "OK":
            for key in record.objects:
                calls.setdefault(f"binding/{key}", []).append(record)
    joined: set[int] = set()
    for event in decisions:
        call = _nearest(calls.get(event.subject, ()), event.time)
        if call is not None:
            joined.add(call.id)
        yield replace(event, by=unasked if call is None else call.actor)
    for record in records:
        if record.id not in joined:
            yield _record_event(record)


def _nearest(
    records: Sequence[access_pb2.AuditRecord], time: float
) -> access_pb2.AuditRecord | None:
    nearest = min(records, key=lambda record: abs(_seconds(record.time) - time), default=None)
    is_near = nearest is not None and abs(_seconds(nearest.time) - time) <= MAX_APART_SECONDS
    return nearest if is_near else None


def binding_events(answer: scheduling_pb2.GetBindingResponse) -> Iterator[HistoryEvent]:
    """Yield how a binding waits, and what leaves a cluster."""
    metadata, wait = answer.binding.metadata, answer.wait
    subject = f"binding/{binding_key(metadata.namespace, metadata.name)}"
    if answer.HasField("wait"):
        states: list[tuple[str, Timestamp, str, str]] = [
            (f"waits, {state_text(wait)}", wait.since, lack_text(wait), "")
        ]
        if wait.HasField("overtaken_since"):
            states.append(("was overtaken", wait.overtaken_since, "", wait.overtaken_by))
        if wait.HasField("earmarked_since"):
            states.append(("has room kept for it", wait.earmarked_since, "", ""))
        if wait.HasField("nominated"):
            states.append(("has room kept for it", wait.nominated.since, "others leave", ""))
        for what, moment, why, by in states:
            yield _state_event(subject, what, moment, why=why, by=by)
    for task in answer.binding.spec.graceful_eviction_tasks:
        if task.HasField("creation_timestamp"):
            why = ": ".join(filter(None, (task.reason, task.message)))
            what = f"leaves {task.from_cluster} with {plural(task.replicas, 'replica')}"
            yield _state_event(subject, what, task.creation_timestamp, why=why, by=task.producer)


def cluster_events(cluster: resource_pb2.Cluster) -> Iterator[HistoryEvent]:
    """Yield when conditions of a cluster changed, and when taints were added."""
    subject = f"cluster/{cluster.metadata.name}"
    for condition in cluster.status.conditions:
        if condition.HasField("last_transition_time"):
            why = ": ".join(filter(None, (condition.reason, condition.message)))
            what = f"{condition.type} {condition.status}"
            yield _state_event(subject, what, condition.last_transition_time, why=why)
    for taint in cluster.spec.taints:
        if taint.HasField("time_added"):
            yield _state_event(subject, f"taint {taint_text(taint)}", taint.time_added)


def is_about_binding(record: access_pb2.AuditRecord, key: str) -> bool:
    return record.method.startswith("Scheduling/") and key in record.objects


def is_about_cluster(record: access_pb2.AuditRecord, name: str) -> bool:
    return record.method.startswith("Clusters/") and name in record.objects


def _decision_event(decision: scheduling_pb2.Decision, change: str) -> HistoryEvent:
    return HistoryEvent(
        time=_seconds(decision.create_time),
        key=f"decision/{decision.id}",
        subject=f"binding/{binding_key(decision.namespace, decision.name)}",
        what=" ".join(filter(None, (outcome_word(decision), change))),
        why=why_text(decision),
    )


def _share_in(decision: scheduling_pb2.Decision, cluster: str) -> str:
    return shares_text(share for share in decision.clusters if share.name == cluster)


def _record_event(record: access_pb2.AuditRecord) -> HistoryEvent:
    service, _, method = record.method.rpartition("/")
    kind = {"Clusters": "cluster/", "Scheduling": "binding/"}.get(service, "")
    result = result_text(record)
    return HistoryEvent(
        time=_seconds(record.time),
        key=f"record/{record.id}",
        subject=f"{kind}{objects_text(record)}" if record.objects else "-",
        what=method if result == "OK" else f"{method} {result}",
        why=record.reason,
        by=record.actor,
    )


def _state_event(
    subject: str, what: str, moment: Timestamp, *, why: str = "", by: str = ""
) -> HistoryEvent:
    time = moment.ToJsonString()
    key = f"{subject}/{what.partition(',')[0].replace(' ', '-')}/{time}"
    return HistoryEvent(time=_seconds(moment), key=key, subject=subject, what=what, why=why, by=by)


def _seconds(moment: Timestamp) -> float:
    return seconds_from_timestamp(moment) or 0.0
