"""Requests for fresh reports: after many decisions, and before a refusal for lack of capacity.

Only a report corrects the capacity that promises assume. Must not ask one agent too often, nor all
agents at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from federation.model.readable import plural
from federation.model.reservations import Share
from federation.model.shapes import request_shape
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, Change, ClusterChanged, ReportAdvanced
from federation.services.member_ports import AgentReports
from federation.services.pace import Pace
from federation.services.ports import Clock

# A report is due after so many decisions, or after a 20th of any allocatable resource.
MAX_DECISIONS = 10
ALLOCATABLE_PART = 20
MIN_SECONDS_BETWEEN_REPORTS = 1.0
# In all clusters together, because packing the room of a report costs more than a decision.
MAX_REPORTS_PER_SECOND = 10.0
# A refusal waits no longer for a report. A second refusal in that time waits for the same report.
WAIT_SECONDS = 0.3
MIN_SECONDS_BEFORE_REFUSALS = 0.25
# For refusals in all clusters together: at once, and per second.
MAX_REPORTS_BEFORE_REFUSALS = 20.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Since:
    """Decisions for a cluster since its last report, and the resources that they promised."""

    decisions: int = 0
    amounts: dict[str, int] = field(default_factory=dict)

    def add(self, shares: Sequence[Share]) -> None:
        for share in shares:
            for name, amount in request_shape(share.requirements.request):
                self.amounts[name] = self.amounts.get(name, 0) + amount * share.replicas


class Refreshing:
    """The requests of one control plane to the agents whose streams it serves."""

    def __init__(self, fleet: FleetOwner, agents: AgentReports, clock: Clock) -> None:
        self._fleet = fleet
        self._agents = agents
        self._clock = clock
        self._since: dict[str, _Since] = {}
        self._asked_at: dict[str, float] = {}
        # Events of requested reports, which are set and removed when the report arrives.
        self._awaited: dict[str, asyncio.Event] = {}
        self._free_at = 0.0
        self._before_refusals = Pace(
            at_once=MAX_REPORTS_BEFORE_REFUSALS,
            per_second=MAX_REPORTS_BEFORE_REFUSALS,
            now=clock.now(),
        )

    def changed(self, change: Change) -> None:
        """Count a change; call it after the change was applied to the fleet."""
        match change:
            case BindingChanged():
                for cluster, part in change.clusters.items():
                    if part.shares and self._fleet.has(cluster):
                        self._count(cluster, part.shares)
            case ReportAdvanced():
                self._since.pop(change.cluster, None)
                self._note_report(change.cluster)
            case ClusterChanged():
                if change.deleted or change.emptied:
                    self._since.pop(change.cluster, None)
                    self._asked_at.pop(change.cluster, None)
                    self._note_report(change.cluster)

    def before_refusal(self, clusters: Iterable[str]) -> list[asyncio.Event]:
        """Request reports that a refusal waits for; return the events of their arrival.

        Skip agents that have just reported, and those that another control plane serves.
        """
        now = self._clock.now()
        awaited = []
        for cluster in clusters:
            since_asked = now - self._asked_at.get(cluster, -MIN_SECONDS_BETWEEN_REPORTS)
            if cluster not in self._awaited or since_asked >= WAIT_SECONDS:
                is_early = since_asked < MIN_SECONDS_BEFORE_REFUSALS
                if is_early or self._before_refusals.left_at(now) < 1:
                    continue
                if not self._request(cluster, "a binding finds no room", now):
                    continue
                self._before_refusals.spend(1, now)
            awaited.append(self._awaited[cluster])
        return awaited

    def _note_report(self, cluster: str) -> None:
        if event := self._awaited.pop(cluster, None):
            event.set()

    def _request(self, cluster: str, reason: str, now: float) -> bool:
        """Send a request; return whether this control plane serves the agent's stream."""
        self._asked_at[cluster] = now
        is_served = self._agents.refresh(cluster, reason)
        if is_served:
            self._awaited.setdefault(cluster, asyncio.Event())
        return is_served

    def _count(self, cluster: str, shares: Sequence[Share]) -> None:
        """Count a decision, also for replicas that run already: an early report does no harm."""
        since = self._since.get(cluster)
        if since is None:
            since = self._since[cluster] = _Since()
        since.decisions += 1
        if since.decisions < MAX_DECISIONS:
            since.add(shares)
            if not self._is_much(cluster, since):
                return
        self._ask(cluster, since)

    def _is_much(self, cluster: str, since: _Since) -> bool:
        report = self._fleet.report(cluster)
        if report is None:
            return False
        allocatable = report.summary.allocatable
        return any(
            amount * ALLOCATABLE_PART >= max(allocatable.get(name, 0), 1)
            for name, amount in since.amounts.items()
        )

    def _ask(self, cluster: str, since: _Since) -> None:
        now = self._clock.now()
        asked_at = self._asked_at.get(cluster, -MIN_SECONDS_BETWEEN_REPORTS)
        # A request that comes too early is made at one of the next decisions.
        if now - asked_at < MIN_SECONDS_BETWEEN_REPORTS or now < self._free_at:
            return
        # Agents of other control planes count too, because looking for them costs time.
        self._free_at = now + 1 / MAX_REPORTS_PER_SECOND
        were = "was" if since.decisions == 1 else "were"
        reason = f"{plural(since.decisions, 'decision')} {were} made since the last report"
        self._request(cluster, reason, now)
