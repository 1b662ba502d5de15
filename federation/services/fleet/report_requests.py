"""Asking agents for fresh reports once much was promised since their last one.

A report takes over what it sees: nothing else keeps promises as close to what is really there.
Must not ask one agent more than once a second, nor all of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from federation.model.reservations import Share
from federation.model.shapes import request_shape
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, Change, ClusterChanged, ReportAdvanced
from federation.services.ports import AgentReports, Clock

DECISIONS = 10
# One in so many of anything that the cluster has.
PART = 20
LEAST_SECONDS = 1.0
# What a burst over all clusters may bring on: packing a report anew costs more than a decision.
REPORTS_A_SECOND = 10.0


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
        self._free_at = 0.0

    def changed(self, change: Change) -> None:
        match change:
            case BindingChanged():
                for cluster, given in change.clusters.items():
                    if given.shares and self._fleet.has(cluster):
                        self._count(cluster, given.shares)
            case ReportAdvanced():
                self._since.pop(change.cluster, None)
            case ClusterChanged():
                if change.deleted or change.emptied:
                    self._since.pop(change.cluster, None)
                    self._asked_at.pop(change.cluster, None)

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
        self._asked_at[cluster] = now
        self._free_at = now + 1 / REPORTS_A_SECOND
        reason = f"{since.decisions} decisions were made since the last report"
        self._agents.refresh(cluster, reason)
