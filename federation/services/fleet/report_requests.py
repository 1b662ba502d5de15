"""Asking agents for fresh reports: once much was promised since their last one, and before a
refusal for want of room.

A report takes over what it sees: nothing else keeps promises as close to what is really there.
Must not ask one agent again and again, nor all of them at once.
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

DECISIONS = 10
# One in so many of anything that the cluster has.
PART = 20
LEAST_SECONDS = 1.0
# What a burst over all clusters may bring on: packing a report anew costs more than a decision.
REPORTS_A_SECOND = 10.0
# What is to be refused may wait for a report that is so late, and needs none that is newer.
WAIT_SECONDS = 0.3
LEAST_SECONDS_BEFORE_REFUSALS = 0.25
REPORTS_AT_ONCE_BEFORE_REFUSALS = 20.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Since:
    """What was promised in a cluster since its last report."""

    decisions: int = 0
    amounts: dict[str, int] = field(default_factory=dict)

    def add(self, shares: Sequence[Share]) -> None:
        for each in shares:
            for name, amount in request_shape(each.requirements.request):
                more = amount * each.replicas
                self.amounts[name] = self.amounts.get(name, 0) + more


class Refreshing:
    """``changed`` is to be called of every change, after it was applied."""

    def __init__(self, fleet: FleetOwner, agents: AgentReports, clock: Clock) -> None:
        self._fleet = fleet
        self._agents = agents
        self._clock = clock
        self._since: dict[str, _Since] = {}
        self._asked_at: dict[str, float] = {}
        # Set, and gone from here, when a report came that was asked for.
        self._awaited: dict[str, asyncio.Event] = {}
        self._free_at = 0.0
        self._before_refusals = Pace(
            at_once=REPORTS_AT_ONCE_BEFORE_REFUSALS,
            per_second=REPORTS_AT_ONCE_BEFORE_REFUSALS,
            now=clock.now(),
        )

    def changed(self, change: Change) -> None:
        match change:
            case BindingChanged():
                for cluster, given in change.clusters.items():
                    if given.shares and self._fleet.has(cluster):
                        self._count(cluster, given.shares)
            case ReportAdvanced():
                self._since.pop(change.cluster, None)
                self._note_report(change.cluster)
            case ClusterChanged():
                if change.deleted or change.emptied:
                    self._since.pop(change.cluster, None)
                    self._asked_at.pop(change.cluster, None)
                    self._note_report(change.cluster)

    def before_refusal(self, clusters: Iterable[str]) -> list[asyncio.Event]:
        """Ask agents for reports that something to be refused waits for, and what is set when each
        of them came. None of agents that have just reported, or whose stream is not here.
        """
        now = self._clock.now()
        awaited = []
        for cluster in clusters:
            since_asked = now - self._asked_at.get(cluster, -LEAST_SECONDS)
            if cluster not in self._awaited or since_asked >= WAIT_SECONDS:
                is_early = since_asked < LEAST_SECONDS_BEFORE_REFUSALS
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
        """Whether the agent's stream is here."""
        self._asked_at[cluster] = now
        is_here = self._agents.refresh(cluster, reason)
        if is_here:
            self._awaited.setdefault(cluster, asyncio.Event())
        return is_here

    def _count(self, cluster: str, shares: Sequence[Share]) -> None:
        """What is there already may be counted once more: a report early harms nobody."""
        since = self._since.get(cluster)
        if since is None:
            since = self._since[cluster] = _Since()
        since.decisions += 1
        # So many are enough, whatever they promised.
        if since.decisions < DECISIONS:
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
            amount * PART >= max(allocatable.get(name, 0), 1)
            for name, amount in since.amounts.items()
        )

    def _ask(self, cluster: str, since: _Since) -> None:
        now = self._clock.now()
        is_early = now - self._asked_at.get(cluster, -LEAST_SECONDS) < LEAST_SECONDS
        # Whoever has to wait is asked at one of the next decisions.
        if is_early or now < self._free_at:
            return
        # Whether it is here or not: to look for many that are not costs as well.
        self._free_at = now + 1 / REPORTS_A_SECOND
        were = "was" if since.decisions == 1 else "were"
        reason = f"{plural(since.decisions, 'decision')} {were} made since the last report"
        self._request(cluster, reason, now)
