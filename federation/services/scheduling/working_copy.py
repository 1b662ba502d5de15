"""A batch's working copy: what one decision after the other takes of the fleet's rooms.

Plain functions and values of one thread. Must not read or write the store, nor wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TypeAlias

from federation.capacity.careful import WHATEVER_FITS
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.holdings import FirstStakes
from federation.capacity.ledger import ClusterLedger, LedgerInWork
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
from federation.model.reservations import Outstanding, PromiseCertificate, Share
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.scheduler.closed_rooms import ClosedRooms
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
from federation.services.scheduling.kept_promises import kept_promises
from federation.services.scheduling.known_answers import KnownAnswers
from federation.services.scheduling.shares import (
    NO_REQUIREMENTS,
    NO_SHARES,
    ReservationRequest,
    Reserved,
    adopted_by_name,
    parts,
    promises_of,
    terms_at,
    units_of,
    worth_by_name,
)
from federation.services.scheduling.totals import (
    CHECKED,
    StakeChange,
    TotalsInWork,
    more_units,
    outstanding_after,
    worth_of_kept,
)

RoomsBeside: TypeAlias = "tuple[WorkingCopy, ClosedRooms]"
_Part: TypeAlias = tuple[int, PromiseCertificate]
# Where pools can tell, and why not elsewhere, for what was wanted last.
_Told: TypeAlias = tuple[tuple[ReplicaRequirements, ...], BoolArray, Mapping[int, Reason]]


class WorkingCopy:
    """The rooms and ledgers of a snapshot with what was promised since it was taken.

    The snapshot itself stays as it is.
    """

    def __init__(
        self,
        snapshot: FleetSnapshot,
        known: KnownEstimates | None = None,
        *,
        allow_unproven: bool = False,
    ) -> None:
        """``known`` has deductions of earlier snapshots, from which this one's are made."""
        self.snapshot = snapshot
        self._rooms: FleetRooms = snapshot.rooms
        # What was promised last, until somebody asks for the rooms with that.
        self._taking: Promised | None = None
        self._ledgers: dict[int, LedgerInWork] = {}
        self._known = known or KnownEstimates()
        self._totals = TotalsInWork(snapshot, self._known, self._ledgers)
        self._allow_unproven = allow_unproven
        self._known_told: _Told | None = None
        self._answers = KnownAnswers.about(self.rooms)
        self._shadows: dict[Hashable, RoomsBeside] = {}
        self._open: dict[int, bool] = {}

    @property
    def rooms(self) -> FleetRooms:
        """With what was promised since the snapshot was taken."""
        if self._taking is not None:
            self._rooms, self._taking = self._taking(), None
        return self._rooms

    @rooms.setter
    def rooms(self, rooms: FleetRooms) -> None:
        self._rooms, self._taking = rooms, None

    @cached_property
    def after(self) -> FleetSnapshot:
        """The fleet once all that was promised is committed; nothing more may be promised then."""
        before = self.snapshot.ledgers
        ledgers = {
            position: each.ledger
            for position, each in self._ledgers.items()
            if each.version != before[position].version
        }
        return self.snapshot.with_promises(self.rooms, ledgers)

    def anew(self) -> WorkingCopy:
        """A working copy of the same snapshot, with nothing promised since."""
        return self._of(self.snapshot)

    def branch(self) -> WorkingCopy:
        """Another one with all that was promised so far, which goes on by itself."""
        made = WorkingCopy(self.snapshot, allow_unproven=self._allow_unproven)
        made.rooms = self.rooms
        made._ledgers = {position: each.copy() for position, each in self._ledgers.items()}
        made._totals = TotalsInWork(self.snapshot, self._known, made._ledgers)
        return made

    def let_go(self, keys_in: Mapping[str, Collection[str]]) -> None:
        """These bindings hold nothing any more in these clusters, each of which is packed once."""
        rooms: dict[int, Room] = {}
        for name, keys in sorted(keys_in.items()):
            position = self.snapshot.positions[name]
            ledger, room = self._in_work(position), self.room(position)
            if room is not None:
                rooms[position] = room.repacked(
                    each for each in room.outstanding if each.binding not in keys
                )
            for key in sorted(keys):
                self._totals.take({position: (ledger.stake_of(key), None)})
                ledger.release(key)
        self.rooms = self.rooms.with_rooms(rooms)

    def forget(self) -> None:
        """Nothing comes of what was promised since the snapshot."""
        self.rooms, self._ledgers = self.snapshot.rooms, {}
        self._totals = TotalsInWork(self.snapshot, self._known, self._ledgers)
        self._answers, self._shadows = KnownAnswers.about(self.rooms), {}

    def closed(self, reasons: Mapping[str, Reason]) -> WorkingCopy:
        """The same fleet, with nothing promised since, where these clusters get nothing more.

        Each name has its reason, which a refusal states of the cluster.
        """
        fleet = self.snapshot.fleet
        closed = Column.of(reasons.get(name, NO_REASON) for name in fleet.names)
        return self._of(replace(self.snapshot, fleet=fleet.without(closed)))

    def ahead(self) -> WorkingCopy:
        """A working copy for what is decided before all that was promised is committed."""
        return self._of(self.after)

    def _of(self, snapshot: FleetSnapshot) -> WorkingCopy:
        working = WorkingCopy(snapshot, self._known, allow_unproven=self._allow_unproven)
        if working.rooms is self._answers.rooms:
            working._answers = self._answers
        return working

    def beside(self, binding: Binding, units: Mapping[int, int]) -> WorkingCopy:
        """The same with so many more replicas, or sets, of another binding outstanding by position,
        where there is room for them: to ask what is available beside them.
        """
        key = f"{binding.key} waits"
        asks = {
            position: tuple(
                Outstanding(key, each.requirements, each.replicas * sets, each.component)
                for each, sets in units_of(binding, count)
            )
            for position, count in units.items()
        }
        taken = promise(self.rooms, self.snapshot.names, key, asks, (), WHATEVER_FITS)
        made = WorkingCopy(self.snapshot, self._known, allow_unproven=self._allow_unproven)
        made.rooms = self.rooms if isinstance(taken, Refused) else taken
        made._ledgers, made._totals = self._ledgers, self._totals
        return made

    @property
    def shadows(self) -> dict[Hashable, RoomsBeside]:
        """For callers to keep what they made of it by ``beside``, until the rooms change."""
        _ = self.answers
        return self._shadows

    @property
    def answers(self) -> KnownAnswers:
        """To what was asked since the rooms changed last."""
        if self._answers.rooms is not self.rooms:
            self._answers, self._shadows = KnownAnswers.about(self.rooms), {}
        return self._answers

    def ledger(self, position: int) -> ClusterLedger:
        changed = self._ledgers.get(position)
        return changed.ledger if changed else self.snapshot.ledgers[position]

    def room(self, position: int) -> Room | None:
        return self.rooms.rooms[position]

    def moved_since(self, newer: FleetSnapshot, names: Iterable[str]) -> frozenset[str]:
        """The clusters of those names that are not, in a newer snapshot, as this one knew them."""
        here, there = self.snapshot, newer
        return frozenset(
            name
            for name in names
            if name not in there.positions
            or there.ledgers[there.positions[name]].version
            != here.ledgers[here.positions[name]].version
        )

    def availability(
        self, binding: Binding, asked: Certificate | None, *, leaves_large: bool = True
    ) -> Estimates:
        """How many more replicas (or whole sets) can be promised in each cluster.

        Where no nodes are seen: what totals and grade counts leave, or, where these do not count,
        unknown. Worked out once for those that are nowhere and ask the same, and for one that asks
        where it is, until the rooms change. ``leaves_large`` is as for ``reserve.packable``.
        """
        # Where it is, ledgers in work say more than those of the snapshot.
        is_in_work = bool(binding.clusters and self._ledgers)
        if is_in_work or binding.components or self._lesser_c(binding, asked) is not None:
            return self._availability(binding, asked, leaves_large=leaves_large)
        if binding.clusters:
            ledgers = self.snapshot.ledgers
            return self.answers.available_beside_own(binding, asked, ledgers, self._availability)
        work_out = partial(self._availability, leaves_large=leaves_large)
        return self.answers.available_anew(binding, asked, work_out, leaves_large=leaves_large)

    def scarcities(self, asked: Certificate | None) -> dict[Hashable, Reason] | None:
        """What was found to be scarce since the rooms changed last, for ``with_scarcity``. None:
        what is available also depends on more than rooms.
        """
        if self._allow_unproven:
            return None
        return self.answers.scarcities(asked)

    def is_open(self, position: int) -> bool:
        """Whether anything was outstanding in a cluster when the snapshot was taken."""
        is_open = self._open.get(position)
        if is_open is None:
            is_open = self._open[position] = self.snapshot.ledgers[position].is_open
        return is_open

    def _availability(
        self, binding: Binding, asked: Certificate | None, *, leaves_large: bool = True
    ) -> Estimates:
        promises = kept_promises(binding, self.snapshot, self._ledgers)
        own, totals = own_of(self.rooms, binding, asked, promises), self._told(binding)
        estimates = promisable(self.rooms, binding, asked, totals, own, leaves_large=leaves_large)
        lesser_c = self._lesser_c(binding, asked)
        if lesser_c is None:
            return estimates
        lesser = self._totals.left(shape_of(binding))
        found = replace(instead_where(lesser_c, lesser, estimates), reasons=estimates.reasons)
        choosing = any(each.chooses_nodes for each in requirements_of(binding))
        return ignoring_claims(found) if choosing else found

    def request(
        self,
        binding: Binding,
        decision: str,
        clusters: Iterable[TargetCluster],
        *,
        asked: Certificate | None,
        held: Iterable[str],
        adopts: bool,
        watched: Mapping[str, tuple[Share, ...]] = NO_SHARES,
        refines: bool = False,
        placed: Collection[TargetCluster] = (),
    ) -> ReservationRequest:
        """What a decision over the clusters asks to be reserved.

        ``adopts``: the replicas in ``binding.clusters`` run already and are new to the ledger.
        ``watched`` is what it keeps in clusters that it leaves. ``refines``: a second look may have
        granted some of the shares. ``placed`` is where the binding is.
        """
        worth, alike = self._worth(binding, asked), dict[_Part, tuple[Share, ...]]()
        shares, checked = {}, {}
        for target in clusters:
            if target.replicas > 0:
                certificate = worth(target.name)
                if not certificate.is_packed:
                    certificate, more = self._unpacked(binding, target, asked, adopts=adopts)
                    if more:
                        checked[target.name] = more
                part = target.replicas, certificate
                if part not in alike:
                    alike[part] = parts(binding, *part)
                shares[target.name] = alike[part]
        watched = {name: kept for name, kept in watched.items() if name not in shares}
        return ReservationRequest(
            key=binding.key,
            decision=decision,
            asked=asked,
            shares=shares,
            left=tuple(sorted(set(held) - shares.keys() - watched.keys())),
            adopted=adopted_by_name(binding, shares) if adopts else {},
            watched=watched,
            unit=shape_of(binding) if checked else NO_REQUIREMENTS,
            checked=checked,
            terms=terms_of(binding, refines=refines),
            placed=frozenset(each.name for each in placed),
        )

    def reserve(self, request: ReservationRequest) -> Reserved | Refused:
        """Take the room for all shares, or for none."""
        positions = self.snapshot.positions
        if gone := [name for name in request.shares if name not in positions]:
            return Refused(reasons=dict.fromkeys(gone, Reason(ReasonCode.CLUSTER_GONE)))
        if short := self._totals.short(request.unit, request.checked):
            return Refused(reasons=short)
        given = self._given(request)
        taken = promised(
            self.rooms,
            self.snapshot.names,
            request.key,
            outstanding_after(given),
            {c for c, (before, _) in given.items() if before is not None and before.outstanding},
            terms_at(request, positions),
            allow_unproven=self._allow_unproven,
        )
        if isinstance(taken, Refused):
            return taken
        self._taking = taken
        return self._reserved(request, given)

    def _reserved(self, request: ReservationRequest, given: Mapping[int, StakeChange]) -> Reserved:
        """Room was taken for it."""
        return Reserved(
            clusters=self._put(request, given),
            reservations=tuple(
                reservation
                for _, (_, stake) in sorted(given.items())
                if stake is not None
                for reservation in stake.reservations
            ),
            promises=promises_of(request, self._report_in),
        )

    def reserve_less(
        self, requests: Sequence[ReservationRequest]
    ) -> Mapping[str, Reserved] | Refused:
        """``reserve`` for many bindings that lose some of what they have, all of them or none; what
        is left to each, by its key.
        """
        given = {request.key: self._given(request) for request in requests}
        taken = promise_less(
            self.rooms,
            self.snapshot.names,
            {key: outstanding_after(changes) for key, changes in given.items()},
            self.answers.lessened,
            allow_unproven=self._allow_unproven,
        )
        if isinstance(taken, Refused):
            return taken
        self.rooms = taken
        return {each.key: self._reserved(each, given[each.key]) for each in requests}

    def _given(self, request: ReservationRequest) -> dict[int, StakeChange]:
        """What a binding holds before and after a request, by position."""
        key, positions = request.key, self.snapshot.positions
        first = FirstStakes(key, request.decision)
        given: dict[int, StakeChange] = {}
        for name, shares in request.shares.items():
            position = positions[name]
            ledger = self._in_work(position)
            before = ledger.stake_of(key)
            given[position] = before, ledger.stake(first, before, shares, request.adopted.get(name))
        for name, shares in request.watched.items():
            if name in positions:
                ledger = self._in_work(positions[name])
                before = ledger.stake_of(key)
                if before is not None:
                    given[positions[name]] = before, ledger.stake(first, before, shares)
        for name in request.left:
            if name in positions:
                position = positions[name]
                given[position] = self._in_work(position).stake_of(key), None
        return given

    def _report_in(self, name: str) -> ReportId | None:
        """A cluster's, which promises do not change."""
        return self.snapshot.rooms.report(self.snapshot.positions[name])

    def _put(
        self, request: ReservationRequest, given: Mapping[int, StakeChange]
    ) -> Mapping[str, ClusterShares]:
        """Write a binding's stakes into the ledgers; what of it is news, by cluster."""
        names, clusters = self.snapshot.names, {}
        for position, (before, stake) in given.items():
            ledger, name = self._ledgers[position], names[position]
            if stake is None:
                ledger.release(request.key)
            else:
                ledger.put(request.key, before, stake)
            shares = request.shares.get(name) or request.watched.get(name, ())
            adopted = request.adopted.get(name, NO_REPLICAS)
            clusters[name] = ClusterShares(ledger.version, shares, adopted)
        self._totals.take(given)
        return clusters

    def _in_work(self, position: int) -> LedgerInWork:
        known = self._ledgers.get(position)
        if known is None:
            known = self._ledgers[position] = LedgerInWork(self.snapshot.ledgers[position])
        return known

    def _lesser_c(self, binding: Binding, asked: Certificate | None) -> BoolArray | None:
        """Where what totals and grade counts leave is taken for the room there is; None: nowhere.

        These do not see which nodes a claim chooses, and prove nothing that could be asked for.
        """
        if self._allow_unproven:
            told_c, _ = self._told(binding)
            lesser_c = ~told_c
        elif asked is None and self._totals.are_relayed:
            lesser_c = self._blind_c(binding)
        else:
            return None
        return lesser_c if lesser_c.any() else None

    def _blind_c(self, binding: Binding) -> BoolArray:
        """Where totals are somebody else's and no nodes are seen, if none are chosen."""
        chooses = any(each.chooses_nodes for each in requirements_of(binding))
        blind_c: BoolArray = self._totals.relayed_c & self.rooms.layers.unknown_c & (not chooses)
        return blind_c

    def _unpacked(
        self, binding: Binding, target: TargetCluster, asked: Certificate | None, *, adopts: bool
    ) -> tuple[PromiseCertificate, int]:
        """What a share is worth where no nodes are seen, and of how many more units that is to be
        checked.
        """
        position = self.snapshot.positions.get(target.name)
        if position is None:
            return PromiseCertificate.UNPROVEN, 0
        before = self._in_work(position).stake_of(binding.key)
        more = more_units(binding, target, before, adopts=adopts)
        if more <= 0 and self._totals.relayed_c[position]:
            return worth_of_kept(before), 0
        is_checked = self._blind_c(binding)[position]
        if self._allow_unproven:
            left_c = self._totals.left(shape_of(binding)).replicas_c
            is_checked = is_checked and left_c[position] >= more
        elif asked is not None:
            is_checked = False
        return (CHECKED, more) if is_checked else (PromiseCertificate.UNPROVEN, 0)

    def _told(self, binding: Binding) -> tuple[BoolArray, Mapping[int, Reason]]:
        """Where pools can tell whether every part of the workload fits, and why not elsewhere."""
        wanted = requirements_of(binding)
        # Promises do not change it, and one binding after the other wants the same.
        if self._known_told is not None and self._known_told[0] == wanted:
            return self._known_told[1:]
        told_c, reasons = told_by_pools(self.rooms, wanted)
        self._known_told = wanted, read_only(told_c), reasons
        return told_c, reasons

    def _worth(
        self, binding: Binding, asked: Certificate | None
    ) -> Callable[[str], PromiseCertificate]:
        """What a promise of the binding will be worth in a cluster, if there is room."""
        told_c, _ = self._told(binding)
        planned_c = self.rooms.planned_c
        if asked is Certificate.PLANNED:
            # Room is found as for a careful one meanwhile.
            planned_c = planned_c | self.snapshot.may_return_c
        return worth_by_name(asked, self.snapshot.positions, told_c, planned_c)
