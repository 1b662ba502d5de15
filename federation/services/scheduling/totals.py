"""Capacity by totals and grade counts in a working copy, for clusters without visible nodes.

Functions and values of one thread. Must not decide whether a binding may rely on this capacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from federation.capacity.deductions import Deductions
from federation.capacity.holdings import BindingReservations
from federation.capacity.ledger import LedgerDraft
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
from federation.services.scheduling.shares import parts

CHECKED: Final = PromiseCertificate.SUMMARY_CHECKED
# The reservations of a binding in a cluster before and after a decision; None: it has none.
ReservationsChange: TypeAlias = tuple[BindingReservations | None, BindingReservations | None]


class TotalsDraft:
    """Totals of a snapshot less the outstanding promises in its ledgers and in those of ``drafts``.

    The ledgers in ``drafts`` replace those of the snapshot; every promise changes them.
    ``estimates`` has the deductions of earlier snapshots, from which these are computed.
    """

    def __init__(
        self, snapshot: FleetSnapshot, estimates: KnownEstimates, drafts: Mapping[int, LedgerDraft]
    ) -> None:
        self._snapshot = snapshot
        self._estimates = estimates
        self._drafts = drafts
        # Computed on first use, then changed with each promise.
        self._deductions: Deductions | None = None
        self._last_answer: tuple[Deductions, ReplicaRequirements, Estimates] | None = None

    def available(self, unit: ReplicaRequirements) -> Estimates:
        """Return how many additional replicas, or whole sets of components, fit in each cluster."""
        deductions = self._current_deductions()
        answer = self._last_answer
        if answer is None or answer[0] is not deductions or answer[1] != unit:
            # Grade counts cannot count sets, because a set requests pod slots itself.
            highest = Source.SUMMARY if PODS in unit.request else Source.MODELS
            options = EstimateOptions(highest=highest, ignore_claims=True)
            answer = self._last_answer = deductions, unit, deductions.estimates(unit, options)
        return answer[2]

    @cached_property
    def relayed_c(self) -> BoolArray:
        """Mark the clusters whose totals were reported by another source than an agent of ours."""
        reports = (state.report for state in self._snapshot.states)
        return np.array([bool(report and report.source) for report in reports], np.bool_)

    @cached_property
    def are_relayed(self) -> bool:
        """Tell whether the totals of any cluster are relayed."""
        return bool(self.relayed_c.any())

    def shortages(self, unit: ReplicaRequirements, checked: Mapping[str, int]) -> dict[str, Reason]:
        """Return a reason for each checked cluster that has too little capacity by now."""
        if not checked:
            return {}
        positions, free_c = self._snapshot.positions, self.available(unit).replicas_c
        return {
            name: Reason.of(
                ReasonCode.TOTALS_TOO_SMALL, Amount(int(free_c[positions[name]])), Amount(count)
            )
            for name, count in checked.items()
            if free_c[positions[name]] < count
        }

    def take(self, changes: Mapping[int, ReservationsChange]) -> None:
        """Deduct what a decision made outstanding.

        The outstanding promises of a cluster are summed anew if the binding had some there.
        """
        if self._deductions is None:
            return
        added, replaced = {}, {}
        for position, (former, holding) in changes.items():
            if former is not None and former.outstanding:
                replaced[position] = self._outstanding(position)
            elif holding is not None:
                added[position] = holding.outstanding
        self._deductions = self._deductions.with_more(added).with_others(replaced)

    def _current_deductions(self) -> Deductions:
        if self._deductions is None:
            snapshot, ledgers = self._snapshot, self._snapshot.ledgers
            shared = self._estimates.deductions(snapshot.capacity, snapshot.outstanding)
            changed = [
                c for c, draft in self._drafts.items() if draft.version != ledgers[c].version
            ]
            self._deductions = shared.with_others({c: self._outstanding(c) for c in changed})
        return self._deductions

    def _outstanding(self, position: int) -> tuple[Outstanding, ...]:
        return self._drafts[position].ledger.outstanding()


def more_units(
    binding: Binding, target: TargetCluster, holding: BindingReservations | None, *, adopts: bool
) -> int:
    """Return how many replicas, or whole sets, a share adds to those that the binding has.

    The binding has what it reserved with its present requests; if it ``adopts``, what it runs.
    """
    if adopts:
        running = (item.replicas for item in binding.clusters if item.name == target.name)
        return target.replicas - sum(running)
    newest = {item.component: item for item in holding.reservations} if holding else {}
    reserved_units = (
        newest[part.component].replicas // part.replicas
        if part.component in newest
        and newest[part.component].shape == request_shape(part.requirements.request)
        else 0
        for part in parts(binding, 1)
        if part.replicas
    )
    return target.replicas - min(reserved_units, default=target.replicas)


def certificate_of_kept(holding: BindingReservations | None) -> PromiseCertificate:
    """Return the certificate of a share that does not grow: unproven stays unproven."""
    was_unproven = holding is not None and any(
        reservation.certificate is PromiseCertificate.UNPROVEN
        for reservation in holding.reservations
    )
    return PromiseCertificate.UNPROVEN if was_unproven else CHECKED


def outstanding_after(
    changes: Mapping[int, ReservationsChange],
) -> dict[int, tuple[Outstanding, ...]]:
    """Return the outstanding promises after the changes, by position of the cluster."""
    return {
        position: holding.outstanding if holding else ()
        for position, (_, holding) in changes.items()
    }
