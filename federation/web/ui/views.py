"""The views: what each shows of the fleet, of its bindings and of decisions.

Must not draw anything, nor change anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, Final

from starlette.requests import Request

from federation.codec.clusters import cluster_to_message
from federation.codec.hidden_names import hidden_in, hidden_wait
from federation.model.access import Scope
from federation.model.errors import InvalidRequest, NotFound
from federation.model.placement import binding_key
from federation.services.decision_ports import DecisionFilter
from federation.services.ports import AuditFilter
from federation.services.threads import DRAWING
from federation.services.values import ClusterView
from federation.web.ui.funnel import decision_picture
from federation.web.ui.overview import (
    SORTS,
    ClusterRow,
    Meter,
    Overview,
    in_order,
    matching,
    meters_of,
    totals,
)
from federation.web.ui.pool_picture import common_labels, pool_pictures
from federation.web.ui.requests import (
    number_of,
    queue_place_of,
    required_text,
    standing_of,
    text_of,
)
from federation.web.ui.room_history import RoomHistory
from federation.web.ui.use_cases import UseCases

ROWS: Final = 100
LARGEST: Final = 2**63 - 1
# Fewer clusters are seen at a glance in the table.
FEWEST_ON_A_MAP: Final = 25
MOST_OUTSTANDING: Final = 100
MOST_DECISIONS: Final = 20
MOST_MEMBERS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A template and what it shows. A page ``is_live`` is loaded anew when something changes."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    is_live: bool = True
    has_forms: bool = False
    status: int = 200


class Views:
    """One method for each, for who may see a scope: what is outside of it is left out of lists, and
    is not found by its name. All raise what the use cases raise, and InvalidRequest.
    """

    def __init__(self, use_cases: UseCases) -> None:
        self._use_cases = use_cases
        self._overview = Overview(use_cases.fleet, use_cases.services.clock)
        self._rooms = RoomHistory()

    async def keep_looking(self) -> None:
        """At how much room there is, for its history, until it is cancelled."""
        await self._rooms.keep_looking(self._overview)

    async def fleet(self, request: Request, scope: Scope) -> Page:
        text, sort = text_of(request, "q"), text_of(request, "sort") or "name"
        picture = await self._overview.newest()
        if sort not in SORTS and sort not in picture.resources:
            known = ", ".join((*SORTS, *picture.resources))
            raise InvalidRequest.of("sort", f"must be one of {known}")
        first = number_of(request, "first", least=0, most=10**9) or 0
        seen = [each for each in picture.rows if scope.sees_cluster(each.name)]
        chosen = filter(matching(text), seen)
        rows, meters = await DRAWING.run(_ordered, chosen, sort, picture.resources)
        return Page(
            template="fleet",
            title="Fleet",
            values={
                "every": rows,
                "rows": rows[first : first + ROWS],
                "first": first,
                "step": ROWS,
                "count": len(seen),
                "resources": picture.resources,
                "meters": meters,
                "on_map": rows if len(rows) >= FEWEST_ON_A_MAP else (),
                "text": text,
                "sort": sort,
                "sorts": (*SORTS, *picture.resources),
            },
        )

    async def cluster(self, request: Request, scope: Scope) -> Page:
        name = required_text(request, "name")
        fleet, now = self._use_cases.fleet, self._use_cases.services.clock.now()
        view = fleet.view(name)
        outstanding = fleet.ledger(name).outstanding()
        report = view.state.report
        meters = meters_of(report.summary, outstanding) if report else {}
        pools = await DRAWING.run(pool_pictures, view.room) if view.room else ()
        return Page(
            template="cluster",
            title=name,
            values={
                "cluster": view.state.cluster,
                "status": _status(view, now),
                "report": report,
                "as_of": view.state.as_of,
                "presence": view.presence,
                "meters": meters,
                "curves": await DRAWING.run(self._rooms.curves, name, meters, now),
                "pools": pools,
                "common": common_labels(pools),
                "outstanding": [
                    (each, scope.sees_namespace(namespace_of(each.binding)))
                    for each in outstanding[: -MOST_OUTSTANDING - 1 : -1]
                ],
                "outstanding_count": len(outstanding),
                "stuck": view.overcommitted,
                "bindings": len(fleet.ledger(name).bindings()),
            },
        )

    async def bindings(self, request: Request, scope: Scope) -> Page:
        namespace, after = text_of(request, "namespace"), text_of(request, "after_name")
        place = (text_of(request, "after_namespace"), after) if after else None
        part, standing = text_of(request, "name"), standing_of(request)
        page = await self._use_cases.services.scheduling.list_bindings(
            namespace, place, ROWS, among=scope.namespaces, part=part, standing=standing
        )
        return Page(
            template="bindings",
            title="Bindings",
            values={
                "bindings": page.bindings,
                "next_after": page.next_after,
                "namespace": namespace,
                "name_part": part,
                "standing": standing,
                "is_first": place is None,
            },
        )

    async def binding(self, request: Request, scope: Scope) -> Page:
        namespace, name = text_of(request, "namespace"), required_text(request, "name")
        view = await self._use_cases.services.scheduling.get_binding(namespace, name)
        wanted = DecisionFilter(namespace=namespace, name=name)
        history = await self._use_cases.services.history.list_decisions(
            wanted, None, MOST_DECISIONS
        )
        return Page(
            template="binding",
            title=view.binding.key,
            values={
                "binding": view.binding,
                "view": view,
                "wait": hidden_wait(view.wait, scope) if view.wait else None,
                "decisions": [
                    (each, hidden_in("; ".join(each.triggers) or each.reason, scope))
                    for each in history.decisions
                ],
                "has_more": history.next_after is not None,
            },
        )

    async def queue(self, request: Request, scope: Scope) -> Page:
        namespace = text_of(request, "namespace")
        after = queue_place_of(request)
        page = await self._use_cases.services.queueing.list(
            namespace, None, after, ROWS, among=scope.namespaces
        )
        return Page(
            template="queue",
            title="Queue",
            values={
                "queued": [
                    replace(each, wait=hidden_wait(each.wait, scope)) for each in page.bindings
                ],
                "is_last": page.is_last,
                "is_first": after is None,
                "namespace": namespace,
            },
        )

    async def gangs(self, request: Request, scope: Scope) -> Page:
        namespace, after = text_of(request, "namespace"), text_of(request, "after_name")
        place = (text_of(request, "after_namespace"), after) if after else None
        page = await self._use_cases.services.queueing.gangs(
            namespace, place, ROWS + 1, among=scope.namespaces
        )
        return Page(
            template="gangs",
            title="Gangs",
            values={
                "gangs": [
                    replace(gang, waits_for=hidden_in(gang.waits_for, scope))
                    for gang in page[:ROWS]
                ],
                "last": page[ROWS - 1] if len(page) > ROWS else None,
                "namespace": namespace,
                "is_first": place is None,
            },
        )

    async def gang(self, request: Request, scope: Scope) -> Page:
        namespace, name = text_of(request, "namespace"), required_text(request, "name")
        if not scope.sees_namespace(namespace):
            raise NotFound(f"There is no gang {binding_key(namespace, name)!r}.")
        members = await self._use_cases.services.queueing.gang(namespace, name)
        waiting = [each.wait for each in members if each.wait is not None]
        return Page(
            template="gang",
            title=binding_key(namespace, name),
            values={
                "members": [
                    (each.binding, hidden_wait(each.wait, scope) if each.wait else None)
                    for each in members[:MOST_MEMBERS]
                ],
                "here": len(members),
                "placed": sum(1 for each in members if each.binding.clusters),
                "size": max(each.binding.gang.size for each in members if each.binding.gang),
                "first": hidden_wait(waiting[0], scope) if waiting else None,
            },
        )

    async def decision(self, request: Request, scope: Scope) -> Page:
        decision_id = required_text(request, "id")
        record = await self._use_cases.services.scheduling.get_decision(decision_id)
        # A trace says something of every cluster.
        if not scope.sees_all_clusters or not scope.sees_namespace(record.namespace):
            raise NotFound(f"There is no decision {decision_id!r}.")
        first = number_of(request, "first", least=0, most=10**9) or 0
        return Page(
            template="decision",
            title=f"Decision about {record.binding_key}",
            values={
                "record": record,
                "picture": await DRAWING.run(decision_picture, record, scope),
                "first": first,
                "step": ROWS,
            },
        )

    async def audit(self, request: Request, _: Scope) -> Page:
        """For admins, whose tokens see everything."""
        at = number_of(request, "at", least=0, most=LARGEST)
        after = (at, number_of(request, "id", least=0, most=LARGEST) or 0) if at else None
        credential = text_of(request, "credential")
        wanted = AuditFilter(credential_id=credential)
        records = await self._use_cases.services.trail.list(wanted, after, ROWS + 1)
        return Page(
            template="audit",
            title="Audit",
            values={
                "records": records[:ROWS],
                "last": records[ROWS - 1] if len(records) > ROWS else None,
                "is_first": after is None,
                "credential": credential,
            },
        )

    async def about(self, _: Request, scope: Scope) -> Page:
        use_cases = self._use_cases
        failover = await use_cases.services.failover.overview(scope)
        return Page(
            template="about",
            title="About",
            values={
                "version": version("fedsched"),
                "replica": use_cases.replicas.id,
                "endpoint": use_cases.replicas.endpoint,
                "peers": sorted(use_cases.replicas.endpoints),
                "duties": sorted(use_cases.duties.held),
                "failing_duties": await use_cases.duties.failures(),
                "clusters": use_cases.fleet.size,
                "database": use_cases.database,
                "trouble": await use_cases.why_not_ready(),
                "failover": failover,
                "silent": failover.silent,
            },
            is_live=False,
        )


def namespace_of(key: str) -> str:
    """Of a binding's key; empty for cluster-scoped ones."""
    return key.rpartition("/")[0]


def _ordered(
    rows: Iterable[ClusterRow], by: str, resources: Iterable[str]
) -> tuple[list[ClusterRow], list[Meter]]:
    """The rows in order, and what all of them have together."""
    ordered = in_order(rows, by)
    return ordered, [totals(ordered, name) for name in resources]


def _status(view: ClusterView, now: float) -> Any:
    """Conditions in the words of the API."""
    return cluster_to_message(
        view.state,
        view.presence,
        silent=view.presence.is_silent_at(now),
        overcommitted=view.overcommitted,
        careful_reserve=view.careful_reserve,
        promised=view.promised,
    ).status
