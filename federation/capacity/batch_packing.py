"""Promises in many clusters at once, beside all there is: all are packed in the same steps.

Pure. Must not look at clusters that cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from federation.capacity.assignments import Assignment
from federation.capacity.cells import VIEWS, View
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.layers import KnownRoom
from federation.capacity.packing import Packing, pack, packed_in_place
from federation.model.arrays import BoolArray, IntArray
from federation.model.pools.matching import Match
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements

# What is wanted of one cluster, and those where the very same is.
_Group: TypeAlias = tuple[tuple[Outstanding, ...], list[int]]
# The fleet with what was promised, made for whoever goes on with it: a preview does not.
Promised: TypeAlias = Callable[[], FleetRooms]
# Whether so few find room is told sooner by packing them than by what is left in the whole fleet.
_FEW: Final = 256


@dataclass(slots=True, kw_only=True, eq=False)
class _Round:
    """What is wanted of the same requirements, each with the clusters where it is."""

    requirements: ReplicaRequirements
    wanted: list[tuple[Outstanding, list[int]]] = field(default_factory=list)

    def is_for(self, requirements: ReplicaRequirements) -> bool:
        return self.requirements is requirements or self.requirements == requirements

    @property
    def strict(self) -> list[int]:
        """Where what is wanted is promised strictly."""
        strict = PromiseCertificate.STRICT
        return [c for each, here in self.wanted if each.certificate is strict for c in here]


def simple_asks(
    fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]
) -> dict[int, tuple[Outstanding, ...]]:
    """The asks of a binding in clusters where it needs room of its own that cells prove."""
    plain = [position for position in asks if fleet.held[position] is not None]
    simple: dict[int, tuple[Outstanding, ...]] = {}
    for wanted, positions in _groups(plain, asks):
        if wanted and all(each.certificate.is_packed and not each.credited for each in wanted):
            telling = positions
            for each in wanted:
                telling = fleet.telling(telling, each.requirements.node_claim)
            simple |= dict.fromkeys(telling, wanted)
    return simple


def _groups(
    positions: Iterable[int], asks: Mapping[int, tuple[Outstanding, ...]]
) -> Iterable[_Group]:
    """Clusters by what is wanted there. Those of a decision mostly share a few values, which are
    told apart by identity: to compare them would take longer than to do the same twice.
    """
    groups: dict[int, _Group] = {}
    for position in positions:
        wanted = asks[position]
        group = groups.get(id(wanted))
        if group is None:
            group = groups[id(wanted)] = wanted, []
        group[1].append(position)
    return groups.values()


def promised_together(
    fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]
) -> Promised | dict[int, Reason]:
    """Pack all that is wanted, component after component; every cluster's ask is a simple one.

    The fleet with all of it, or why there is too little room, by the clusters where there is.
    """
    if not asks:
        return lambda: fleet
    if len(asks) > _FEW and _surely_fit(fleet, asks):
        return partial(_with_all, fleet, asks)
    return _packed_together(fleet, asks)


def _surely_fit(fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]) -> bool:
    """Whether all of it finds room by what is left alone, so that it need not be packed before the
    fleet with it is asked for.
    """
    one, *others = _rounds(_groups(asks, asks))
    if others or _strict_c(fleet, one) is not None:
        return False
    least_c = np.minimum(*fleet.most_by_view(one.requirements))
    return all(int(least_c[here].min()) >= wanted.to_pack for wanted, here in one.wanted)


def _with_all(fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]) -> FleetRooms:
    """The fleet with what surely fits."""
    packed = _packed_together(fleet, asks)
    if callable(packed):
        return packed()
    raise LookupError(f"what surely fits finds no room: {packed}")


def _packed_together(
    fleet: FleetRooms, asks: Mapping[int, tuple[Outstanding, ...]]
) -> Promised | dict[int, Reason]:
    positions, residues = fleet.layers.gathered(list(asks))
    place_by = {position: place for place, position in enumerate(positions)}
    promised: dict[int, tuple[Assignment, ...]] = {}
    reasons: dict[int, Reason] = {}
    known: KnownRoom | None = None
    strict: list[int] = []
    for turn, each in enumerate(_rounds(_groups((c for c in positions if c in asks), asks))):
        replicas_c = np.zeros(len(positions), dtype=np.int64)
        for wanted, here in each.wanted:
            replicas_c[[place_by[position] for position in here]] = wanted.to_pack
        verdict_p = fleet.kinds.verdicts(each.requirements.node_claim)
        suiting_p = None if verdict_p is None else verdict_p == Match.YES
        # A gathered table has room for the pieces of one packing: the next ones gather it anew.
        packed_on = pack if turn else packed_in_place
        packing = packed_on(residues, each.requirements.request, replicas_c, suiting_p)
        residues = packing.left
        # The next binding mostly asks for the same.
        known = None
        if packing.room_s is not None and verdict_p is None:
            known = each.requirements.request, packing.room_s.reshape(-1, VIEWS)
        strict += each.strict
        strict_c = _strict_c(fleet, each)
        if (packing.placed_s < replicas_c.repeat(VIEWS)).any() or strict_c is not None:
            most_c = _packed_c(packing, each, place_by, len(fleet))
            if strict_c is not None:
                more = {c: [one.contending for one in every] for c, every in promised.items()}
                most_c = fleet.strict_most_c(each.requirements, strict_c, most_c, more)
            for wanted, here in each.wanted:
                for position in here:
                    if most_c[position] < wanted.to_pack:
                        reason = shortage(int(most_c[position]), wanted)
                        reasons.setdefault(position, reason)
        for wanted, here in each.wanted:
            for c in here:
                one = Assignment(wanted, packing.takes, place_by[c], fleet.resources(c))
                promised[c] = (*promised[c], one) if c in promised else (one,)
    if reasons:
        return reasons
    return partial(fleet.with_promise, positions, residues, promised, known, strict)


def _rounds(groups: Iterable[_Group]) -> list[_Round]:
    """Everything that is wanted, what is alike in one round, each cluster's in its own order: a
    room by itself, and every other control plane, packs in that.
    """
    rounds: list[_Round] = []
    for wanted, positions in groups:
        turn = 0
        for each in wanted:
            while turn < len(rounds) and not rounds[turn].is_for(each.requirements):
                turn += 1
            if turn == len(rounds):
                rounds.append(_Round(requirements=each.requirements))
            rounds[turn].wanted.append((each, positions))
            turn += 1
    return rounds


def _packed_c(packing: Packing, one: _Round, place_by: Mapping[int, int], size: int) -> IntArray:
    """How many of what is wanted find room in both views, by cluster of the fleet."""
    least_c = np.minimum(*(packing.placed_s[view::VIEWS] for view in View))
    most_c = np.zeros(size, dtype=np.int64)
    for _, positions in one.wanted:
        most_c[positions] = least_c[[place_by[position] for position in positions]]
    return most_c


def _strict_c(fleet: FleetRooms, one: _Round) -> BoolArray | None:
    """Where what is wanted is promised strictly; None where no strict promise is to be looked at,
    theirs or another.
    """
    strict = one.strict
    asked = [position for _, positions in one.wanted for position in positions]
    if not strict and not fleet.strict_c[asked].any():
        return None
    strict_c = np.zeros(len(fleet), dtype=np.bool_)
    strict_c[strict] = True
    return strict_c


def shortage(max_replicas: int, promise: Outstanding, held: int = 0) -> Reason:
    """Why something is refused for want of room, beside so many replicas that it is more of."""
    return Reason.of(
        ReasonCode.FEWER_FIT, Amount(held + max_replicas), Amount(held + promise.to_pack)
    )
