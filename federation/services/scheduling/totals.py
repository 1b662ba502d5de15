"""What totals and grade counts leave in a batch's working copy, where no nodes are seen.

Plain functions and values of one thread. Must not decide whether that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from federation.capacity.deductions import Deductions
from federation.capacity.holdings import Stake
from federation.capacity.ledger import LedgerInWork
from federation.model.arrays import BoolArray
from federation.model.estimate import EstimateOptions, Estimates, Source
from federation.model.placement import Binding
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.resources import PODS
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.services.fleet.known_estimates import KnownEstimates
from federation.services.fleet.snapshot import FleetSnapshot

CHECKED: Final = PromiseCertificate.SUMMARY_CHECKED
# What a binding held in a cluster, and what it holds after a decision.
StakeChange: TypeAlias = tuple[Stake | None, Stake | None]


class TotalsInWork:
    """Of a snapshot, less what is outstanding by its ledgers and by those in ``work``, which change
    with every promise. ``known`` has deductions of earlier snapshots, which these are made from.
    """

    def __init__(
        self, snapshot: FleetSnapshot, known: KnownEstimates, work: Mapping[int, LedgerInWork]
    ) -> None:
        self._snapshot = snapshot
        self._known = known
        self._work = work
        # None: nobody has asked yet.
        self._deductions: Deductions | None = None
        self._answered: tuple[Deductions, ReplicaRequirements, Estimates] | None = None

    def left(self, unit: ReplicaRequirements) -> Estimates:
        """How many more replicas, or whole sets of components, fit by them."""
        deducted = self._deducted()
        known = self._answered
        if known is None or known[0] is not deducted or known[1] != unit:
            # Grades do not count sets, which ask for pod slots of their own.
            highest = Source.SUMMARY if PODS in unit.request else Source.MODELS
            options = EstimateOptions(highest=highest, ignore_claims=True)
            known = self._answered = deducted, unit, deducted.estimates(unit, options)
        return known[2]

    @cached_property
    def relayed_c(self) -> BoolArray:
        """Whose totals are somebody else's than an agent's own."""
        states = self._snapshot.states
        return np.array([bool(each.report and each.report.source) for each in states], np.bool_)

    @cached_property
    def are_relayed(self) -> bool:
        """Whether those of any cluster are."""
        return bool(self.relayed_c.any())

    def short(self, unit: ReplicaRequirements, checked: Mapping[str, int]) -> dict[str, Reason]:
        """Where they leave less than so many more units by now, and how much."""
        if not checked:
            return {}
        positions, left_c = self._snapshot.positions, self.left(unit).replicas_c
        return {
            name: Reason.of(
                ReasonCode.TOTALS_TOO_SMALL, Amount(int(left_c[positions[name]])), Amount(more)
            )
            for name, more in checked.items()
            if left_c[positions[name]] < more
        }

    def take(self, given: Mapping[int, StakeChange]) -> None:
        """What came to be outstanding by a decision; where something ended, all is looked at."""
        if self._deductions is None:
            return
        more, others = {}, {}
        for position, (before, stake) in given.items():
            if before is not None and before.outstanding:
                others[position] = self._outstanding(position)
            elif stake is not None:
                more[position] = stake.outstanding
        self._deductions = self._deductions.with_more(more).with_others(others)

    def _deducted(self) -> Deductions:
        if self._deductions is None:
            before = self._snapshot.ledgers
            known = self._known.deductions(self._snapshot.capacity, self._snapshot.outstanding)
            changed = [c for c, each in self._work.items() if each.version != before[c].version]
            self._deductions = known.with_others({c: self._outstanding(c) for c in changed})
        return self._deductions

    def _outstanding(self, position: int) -> tuple[Outstanding, ...]:
        return self._work[position].ledger.outstanding()


def more_units(
    binding: Binding, target: TargetCluster, stake: Stake | None, *, adopts: bool
) -> int:
    """By how many replicas, or whole sets, a share is more than what the binding has there of what
    it asks for now: holds, or ``adopts`` as it runs.
    """
    if adopts:
        running = (each.replicas for each in binding.clusters if each.name == target.name)
        return target.replicas - sum(running)
    newest = {each.component: each for each in stake.reservations} if stake else {}
    parts = (
        [(each.name, each.requirements, each.replicas) for each in binding.components]
        if binding.components
        else [("", binding.requirements, 1)]
    )
    held = (
        newest[name].replicas // replicas
        if name in newest and newest[name].shape == request_shape(requirements.request)
        else 0
        for name, requirements, replicas in parts
        if replicas
    )
    return target.replicas - min(held, default=target.replicas)


def worth_of_kept(stake: Stake | None) -> PromiseCertificate:
    """What a share is worth that does not grow: as it was, where it was not packed."""
    was_unproven = stake is not None and any(
        each.certificate is PromiseCertificate.UNPROVEN for each in stake.reservations
    )
    return PromiseCertificate.UNPROVEN if was_unproven else CHECKED


def outstanding_after(given: Mapping[int, StakeChange]) -> dict[int, tuple[Outstanding, ...]]:
    """What is outstanding after a change, by position."""
    return {position: stake.outstanding if stake else () for position, (_, stake) in given.items()}
