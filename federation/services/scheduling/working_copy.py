"""A working copy of the fleet, from which the decisions of a batch take capacity one by one.

Functions and values of one thread. Must not read or write the store, nor wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeAlias

from federation.capacity.careful import WHATEVER_FITS
from federation.capacity.cluster_room import Room
from federation.capacity.holdings import NewReservations
from federation.capacity.ledger import ClusterLedger, LedgerDraft
from federation.capacity.reserve import (
    FleetRooms,
    Promised,
    Refused,
    promise,
    promise_less,
    promised,
)
from federation.model.arrays import BoolArray, read_only
from federation.model.component_sets import shape_of
from federation.model.estimate import Estimates, ignoring_claims
from federation.model.placement import Binding, Certificate
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason
from federation.model.reservations import PromiseCertificate, Share
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.scheduler.earmarks import EarmarkShadow
from federation.scheduler.fleet import Column
from federation.scheduler.promisable import (
    instead_where,
    own_of,
    promisable,
    requirements_of,
    terms_of,
    told_by_pools,
)
from federation.services.fleet.known_estimates import KnownEstimates
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.journal import NO_REPLICAS, ClusterShares
from federation.services.scheduling.known_answers import KnownAnswers
from federation.services.scheduling.shares import (
    NO_REQUIREMENTS,
    NO_SHARES,
    ReservationRequest,
    Reserved,
    adopted_by_name,
    certificate_by_name,
    kept_promises,
    outstanding_units,
    parts,
    promises_of,
    terms_at,
)
from federation.services.scheduling.totals import (
    CHECKED,
    ReservationsChange,
    TotalsDraft,
    certificate_of_kept,
    more_units,
    outstanding_after,
)

_Part: TypeAlias = tuple[int, PromiseCertificate]
# The clusters whose pools show where these requirements fit, and the reasons for the rest.
_Told: TypeAlias = tuple[tuple[ReplicaRequirements, ...], BoolArray, Mapping[int, Reason]]


class WorkingCopy:
    """The packed capacity and the ledgers of a snapshot with the promises made since.

    The snapshot itself does not change.
    """

    def __init__(
        self,
        snapshot: FleetSnapshot,
        estimates: KnownEstimates | None = None,
        *,
        allow_unproven: bool = False,
    ) -> None:
        """``estimates`` has deductions of earlier snapshots, from which new ones are computed."""
        self.snapshot = snapshot
        self._rooms: FleetRooms = snapshot.rooms
        # The last promise; ``rooms`` packs it on first use.
        self._taking: Promised | None = None
        self._ledgers: dict[int, LedgerDraft] = {}
        # Where a binding had reservations that changed, so that a trial may be packed otherwise.
        self._reordered = set[int]()
        self._estimates = estimates or KnownEstimates()
        self._totals = TotalsDraft(snapshot, self._estimates, self._ledgers)
        self._allow_unproven = allow_unproven
        self._last_told: _Told | None = None
        self._answers = KnownAnswers.about(self.rooms)
        self._shadows: dict[Hashable, EarmarkShadow[Any]] = {}
        self._open: dict[int, bool] = {}

    @property
    def rooms(self) -> FleetRooms:
        """The packed capacity with all promises made since the snapshot."""
        if self._taking is not None:
            self._rooms, self._taking = self._taking(), None
        return self._rooms

    @rooms.setter
    def rooms(self, rooms: FleetRooms) -> None:
        self._rooms, self._taking = rooms, None

    @cached_property
    def after_commit(self) -> FleetSnapshot:
        """The fleet after a commit, as every control plane packs it. Promise nothing after that."""
        committed = self.snapshot.ledgers
        ledgers = {
            position: draft.ledger
            for position, draft in self._ledgers.items()
            if draft.version != committed[position].version
        }
        orders = {c: ledger.order() for c, ledger in ledgers.items() if c in self._reordered}
        return self.snapshot.with_promises(self.rooms.in_order(orders), ledgers)

    def fresh_copy(self) -> WorkingCopy:
        """Return a working copy of the same snapshot without the promises made since."""
        return self._of(self.snapshot)

    def branch(self) -> WorkingCopy:
        """Return an independent working copy with all promises made so far."""
        branch = WorkingCopy(self.snapshot, allow_unproven=self._allow_unproven)
        branch.rooms = self.rooms
        branch._ledgers = {position: draft.copy() for position, draft in self._ledgers.items()}
        branch._reordered = self._reordered.copy()
        branch._totals = TotalsDraft(self.snapshot, self._estimates, branch._ledgers)
        return branch

    def drop_reservations(self, keys_in: Mapping[str, Collection[str]]) -> None:
        """Drop the reservations of bindings, by cluster. Pack each cluster once."""
        rooms: dict[int, Room] = {}
        for name, keys in sorted(keys_in.items()):
            position = self.snapshot.positions[name]
            ledger, room = self._draft_of(position), self.room(position)
            if room is not None:
                gone = frozenset(keys)
                rooms[position] = room.repacked(room.held.order.without(gone))
            self._reordered.add(position)
            for key in sorted(keys):
                self._totals.take({position: (ledger.reservations_of(key), None)})
                ledger.release(key)
        self.rooms = self.rooms.with_rooms(rooms)

    def drop_promises(self) -> None:
        """Drop all promises made since the snapshot."""
        self.rooms, self._ledgers, self._reordered = self.snapshot.rooms, {}, set()
        self._totals = TotalsDraft(self.snapshot, self._estimates, self._ledgers)
        self._answers, self._shadows = KnownAnswers.about(self.rooms), {}

    def closed(self, reasons: Mapping[str, Reason]) -> WorkingCopy:
        """Return a working copy without promises, in which the named clusters get no replicas.

        The reason by name is that of the cluster's refusal.
        """
        fleet = self.snapshot.fleet
        closed = Column.of(reasons.get(name, NO_REASON) for name in fleet.names)
        return self._of(replace(self.snapshot, fleet=fleet.without(closed)))

    def copy_after_commit(self) -> WorkingCopy:
        """Return a working copy for decisions before the promises made so far are committed."""
        return self._of(self.after_commit)

    def _of(self, snapshot: FleetSnapshot) -> WorkingCopy:
        working = WorkingCopy(snapshot, self._estimates, allow_unproven=self._allow_unproven)
        if working.rooms is self._answers.rooms:
            working._answers = self._answers
        return working

    def with_waiting(self, binding: Binding, units: Mapping[int, int]) -> WorkingCopy:
        """Return a copy in which units of a waiting binding take capacity, to ask what is left.

        ``units`` are replicas, or sets, by position of the cluster. If they do not all fit, they
        take none. Ledgers are shared: only ask for availability.
        """
        key = f"{binding.key} waits"
        promises = {c: outstanding_units(binding, key, count) for c, count in units.items()}
        taken = promise(self.rooms, self.snapshot.names, key, promises, (), WHATEVER_FITS)
        copy = WorkingCopy(self.snapshot, self._estimates, allow_unproven=self._allow_unproven)
        copy.rooms = self.rooms if isinstance(taken, Refused) else taken
        copy._ledgers, copy._totals = self._ledgers, self._totals
        return copy

    @property
    def earmark_shadows(self) -> dict[Hashable, EarmarkShadow[Any]]:
        """The capacity less earmarks, remembered by callers until the packed capacity changes.

        Unlike ``answers``, it depends on the fleet, too, and is not shared by copies.
        """
        _ = self.answers
        return self._shadows

    @property
    def answers(self) -> KnownAnswers:
        """Answers that hold until the packed capacity changes."""
        if self._answers.rooms is not self.rooms:
            self._answers, self._shadows = KnownAnswers.about(self.rooms), {}
        return self._answers

    def ledger(self, position: int) -> ClusterLedger:
        """Return the ledger of a cluster with the promises made since the snapshot."""
        changed = self._ledgers.get(position)
        return changed.ledger if changed else self.snapshot.ledgers[position]

    def room(self, position: int) -> Room | None:
        """Return the packed capacity of a cluster, None if it reports no pools."""
        return self.rooms.rooms[position]

    def moved_since(self, newer: FleetSnapshot, names: Iterable[str]) -> frozenset[str]:
        """Return the named clusters that are gone, or whose ledger has changed, in a newer one."""
        own = self.snapshot
        return frozenset(
            name
            for name in names
            if name not in newer.positions
            or newer.ledgers[newer.positions[name]].version
            != own.ledgers[own.positions[name]].version
        )

    def availability(
        self, binding: Binding, certificate: Certificate | None, *, leaves_large: bool = True
    ) -> Estimates:
        """Return how many additional replicas (or whole sets) can be promised in each cluster.

        In a cluster without visible nodes, totals and grade counts say so if they may, else it is
        unknown. ``answers`` remembers the result. ``leaves_large`` is that of ``reserve.packable``.
        """
        # A placed binding may have reservations that only the changed ledgers have.
        has_drafts = bool(binding.clusters and self._ledgers)
        if has_drafts or binding.components or self._by_totals_c(binding, certificate) is not None:
            return self._availability(binding, certificate, leaves_large=leaves_large)
        answers, ledgers = self.answers, self.snapshot.ledgers
        if binding.clusters:
            return answers.available_to_placed(binding, certificate, ledgers, self._availability)
        compute = partial(self._availability, leaves_large=leaves_large)
        return answers.available_to_new(binding, certificate, compute, leaves_large=leaves_large)

    def scarcities(self, certificate: Certificate | None) -> dict[Hashable, Reason] | None:
        """Return the remembered scarce resources for ``with_scarcity``.

        Return None if availability does not depend on packed capacity alone.
        """
        if self._allow_unproven:
            return None
        return self.answers.scarcities(certificate)

    def is_open(self, position: int) -> bool:
        """Tell whether a cluster had outstanding promises when the snapshot was taken.

        Each refusal asks this for up to 64 clusters; lab/benchmarks/bench_queue shows the cost.
        """
        is_open = self._open.get(position)
        if is_open is None:
            is_open = self._open[position] = self.snapshot.ledgers[position].is_open
        return is_open

    def _availability(
        self, binding: Binding, certificate: Certificate | None, *, leaves_large: bool = True
    ) -> Estimates:
        promises = kept_promises(binding, self.snapshot, self._ledgers)
        own, pools = own_of(self.rooms, binding, certificate, promises), self._told(binding)
        packed = promisable(self.rooms, binding, certificate, pools, own, leaves_large=leaves_large)
        by_totals_c = self._by_totals_c(binding, certificate)
        if by_totals_c is None:
            return packed
        by_totals = self._totals.available(shape_of(binding))
        estimates = replace(instead_where(by_totals_c, by_totals, packed), reasons=packed.reasons)
        return ignoring_claims(estimates) if _chooses_nodes(binding) else estimates

    def request(
        self,
        binding: Binding,
        decision: str,
        clusters: Iterable[TargetCluster],
        *,
        certificate: Certificate | None,
        held: Iterable[str],
        adopts: bool,
        watched: Mapping[str, tuple[Share, ...]] = NO_SHARES,
        refines: bool = False,
        placed: Collection[TargetCluster] = (),
    ) -> ReservationRequest:
        """Return the request for the reservations of a decision.

        ``adopts``: the replicas in ``binding.clusters`` run already, and are new to the ledger.
        ``held`` are the clusters where the binding has reservations. ``watched`` are shares that it
        keeps in clusters that it leaves. ``refines``: a second look may have granted some shares.
        ``placed`` are the present targets of the binding.
        """
        certificate_in = self._certificate_in(binding, certificate)
        # Clusters that get as much with equal certificates share one value.
        shares_by_part: dict[_Part, tuple[Share, ...]] = {}
        shares, checked = {}, {}
        for target in clusters:
            if target.replicas > 0:
                promised = certificate_in(target.name)
                if not promised.is_packed:
                    promised, added = self._unpacked(binding, target, certificate, adopts=adopts)
                    if added:
                        checked[target.name] = added
                part = target.replicas, promised
                if part not in shares_by_part:
                    shares_by_part[part] = parts(binding, *part)
                shares[target.name] = shares_by_part[part]
        watched = {name: share for name, share in watched.items() if name not in shares}
        return ReservationRequest(
            key=binding.key,
            decision=decision,
            certificate=certificate,
            shares=shares,
            left=tuple(sorted(set(held) - shares.keys() - watched.keys())),
            adopted=adopted_by_name(binding, shares) if adopts else {},
            watched=watched,
            unit=shape_of(binding) if checked else NO_REQUIREMENTS,
            checked=checked,
            terms=terms_of(binding, refines=refines),
            placed=frozenset(target.name for target in placed),
        )

    def reserve(self, request: ReservationRequest) -> Reserved | Refused:
        """Take the capacity for all shares of a request, or for none."""
        positions = self.snapshot.positions
        if gone := [name for name in request.shares if name not in positions]:
            return Refused(reasons=dict.fromkeys(gone, Reason(ReasonCode.CLUSTER_GONE)))
        if shortages := self._totals.shortages(request.unit, request.checked):
            return Refused(reasons=shortages)
        changes = self._changes(request)
        taken = promised(
            self.rooms,
            self.snapshot.names,
            request.key,
            outstanding_after(changes),
            {c for c, (former, _) in changes.items() if former is not None and former.outstanding},
            terms_at(request, positions),
            allow_unproven=self._allow_unproven,
        )
        if isinstance(taken, Refused):
            return taken
        self._taking = taken
        return self._reserved(request, changes)

    def _reserved(
        self, request: ReservationRequest, changes: Mapping[int, ReservationsChange]
    ) -> Reserved:
        """Write a request, for which capacity was taken, into the ledgers."""
        holdings = [holding for _, (_, holding) in sorted(changes.items()) if holding is not None]
        positions, report = self.snapshot.positions, self.snapshot.rooms.report
        return Reserved(
            clusters=self._put(request, changes),
            reservations=tuple(item for holding in holdings for item in holding.reservations),
            promises=promises_of(request, lambda name: report(positions[name])),
        )

    def reserve_less(
        self, requests: Sequence[ReservationRequest]
    ) -> Mapping[str, Reserved] | Refused:
        """Take replicas from all these bindings, or from none.

        Return the remaining reservations by key of the binding.
        """
        changes = {request.key: self._changes(request) for request in requests}
        taken = promise_less(
            self.rooms,
            self.snapshot.names,
            {key: outstanding_after(by_position) for key, by_position in changes.items()},
            self.answers.lessened,
            allow_unproven=self._allow_unproven,
        )
        if isinstance(taken, Refused):
            return taken
        self.rooms = taken
        return {item.key: self._reserved(item, changes[item.key]) for item in requests}

    def _changes(self, request: ReservationRequest) -> dict[int, ReservationsChange]:
        """Return the binding's reservations before and after a request, by position."""
        key, positions = request.key, self.snapshot.positions
        first = NewReservations(key, request.decision)
        changes: dict[int, ReservationsChange] = {}
        for name, shares in request.shares.items():
            ledger = self._draft_of(positions[name])
            former = ledger.reservations_of(key)
            holding = ledger.draft(first, former, shares, request.adopted.get(name))
            changes[positions[name]] = former, holding
        for name in (*request.watched, *request.left):
            if name in positions:
                ledger = self._draft_of(positions[name])
                former = ledger.reservations_of(key)
                if name not in request.watched:
                    changes[positions[name]] = former, None
                elif former is not None:
                    holding = ledger.draft(first, former, request.watched[name])
                    changes[positions[name]] = former, holding
        return changes

    def _put(
        self, request: ReservationRequest, changes: Mapping[int, ReservationsChange]
    ) -> Mapping[str, ClusterShares]:
        """Write the changes into the ledgers. Return the new shares by name of the cluster."""
        names, clusters = self.snapshot.names, {}
        for position, (former, holding) in changes.items():
            ledger, name = self._ledgers[position], names[position]
            if holding is None:
                ledger.release(request.key)
            else:
                ledger.put(request.key, former, holding)
            shares = request.shares.get(name) or request.watched.get(name, ())
            adopted = request.adopted.get(name, NO_REPLICAS)
            clusters[name] = ClusterShares(ledger.version, shares, adopted)
        self._totals.take(changes)
        self._reordered.update(c for c, (former, _) in changes.items() if former is not None)
        return clusters

    def _draft_of(self, position: int) -> LedgerDraft:
        draft = self._ledgers.get(position)
        if draft is None:
            draft = self._ledgers[position] = LedgerDraft(self.snapshot.ledgers[position])
        return draft

    def _by_totals_c(self, binding: Binding, certificate: Certificate | None) -> BoolArray | None:
        """Mark the clusters whose available capacity is that of totals and grade counts.

        Return None without any. Totals ignore node selectors, and support no certificate.
        """
        if self._allow_unproven:
            by_totals_c = ~self._told(binding)[0]
        elif certificate is None and self._totals.are_relayed:
            by_totals_c = self._blind_c(binding)
        else:
            return None
        return by_totals_c if by_totals_c.any() else None

    def _blind_c(self, binding: Binding) -> BoolArray:
        """Mark clusters with relayed totals and no visible nodes, if the binding selects none."""
        is_any = not _chooses_nodes(binding)
        blind_c: BoolArray = self._totals.relayed_c & self.rooms.layers.unknown_c & is_any
        return blind_c

    def _unpacked(
        self,
        binding: Binding,
        target: TargetCluster,
        certificate: Certificate | None,
        *,
        adopts: bool,
    ) -> tuple[PromiseCertificate, int]:
        """Return the certificate of a share in a cluster without visible nodes.

        The second value is the number of additional units whose capacity ``reserve`` has to check.
        """
        position = self.snapshot.positions.get(target.name)
        if position is None:
            return PromiseCertificate.UNPROVEN, 0
        former = self._draft_of(position).reservations_of(binding.key)
        added = more_units(binding, target, former, adopts=adopts)
        if added <= 0 and self._totals.relayed_c[position]:
            return certificate_of_kept(former), 0
        is_checked = self._blind_c(binding)[position]
        if self._allow_unproven:
            free_c = self._totals.available(shape_of(binding)).replicas_c
            is_checked = is_checked and free_c[position] >= added
        elif certificate is not None:
            is_checked = False
        return (CHECKED, added) if is_checked else (PromiseCertificate.UNPROVEN, 0)

    def _told(self, binding: Binding) -> tuple[BoolArray, Mapping[int, Reason]]:
        """Mark the clusters whose pools show where all parts of the workload fit.

        The second value has the reasons for the rest.
        """
        requirements = requirements_of(binding)
        # Promises do not change it, and consecutive bindings mostly have equal requirements.
        if self._last_told is not None and self._last_told[0] == requirements:
            return self._last_told[1:]
        told_c, reasons = told_by_pools(self.rooms, requirements)
        self._last_told = requirements, read_only(told_c), reasons
        return told_c, reasons

    def _certificate_in(
        self, binding: Binding, certificate: Certificate | None
    ) -> Callable[[str], PromiseCertificate]:
        """Return a function from a cluster's name to the certificate of a promise there."""
        told_c, _ = self._told(binding)
        planned_c = self.rooms.planned_c
        if certificate is Certificate.PLANNED:
            # An agent may come back; until then capacity is counted as for a careful promise.
            planned_c = planned_c | self.snapshot.may_return_c
        return certificate_by_name(certificate, self.snapshot.positions, told_c, planned_c)


def _chooses_nodes(binding: Binding) -> bool:
    return any(requirements.chooses_nodes for requirements in requirements_of(binding))
