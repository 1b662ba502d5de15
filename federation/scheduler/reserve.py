"""Promises: each an explicit packing into one report's cells, with what it is worth.

Pure. Must not keep what it promises: the caller commits, or forgets the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Certificate
from federation.model.pools.fleet_cells import FleetCells
from federation.model.pools.level import simple_lower_bounds
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.shapes import Shape
from federation.model.workload import ReplicaRequirements
from federation.scheduler.arrays import BoolArray, IntArray
from federation.scheduler.losses import contenders, strict_promises_hold
from federation.scheduler.room import Holding, ReportId, Room


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetRooms:
    """The rooms of a fleet's clusters by position (axis c), None where a cluster has no pools.

    ``filled`` and ``spread`` are the cells of all rooms. ``special_c`` are clusters where more is
    to be looked at than cells: over-committed ones, and ones that hold strict promises.
    """

    rooms: tuple[Room | None, ...]
    filled: FleetCells
    spread: FleetCells
    planned_c: BoolArray
    special_c: BoolArray

    @classmethod
    def of(cls, rooms: Iterable[Room | None]) -> FleetRooms:
        rooms = tuple(rooms)
        return cls(
            rooms=rooms,
            filled=FleetCells.of(room.filled if room else None for room in rooms),
            spread=FleetCells.of(room.spread if room else None for room in rooms),
            planned_c=np.array([_is_planned(room) for room in rooms], dtype=np.bool_),
            special_c=np.array([_is_special(room) for room in rooms], dtype=np.bool_),
        )

    def with_rooms(self, changes: Mapping[int, Room | None]) -> FleetRooms:
        """The same fleet with newer rooms at some positions; this one stays as it is."""
        rooms = list(self.rooms)
        planned_c, special_c = self.planned_c.copy(), self.special_c.copy()
        for position, room in changes.items():
            rooms[position] = room
            planned_c[position] = _is_planned(room)
            special_c[position] = _is_special(room)
        return FleetRooms(
            rooms=tuple(rooms),
            filled=self.filled.with_clusters(
                {c: room.filled if room else None for c, room in changes.items()}
            ),
            spread=self.spread.with_clusters(
                {c: room.spread if room else None for c, room in changes.items()}
            ),
            planned_c=planned_c,
            special_c=special_c,
        )

    def __len__(self) -> int:
        return len(self.rooms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Room for one component in one cluster. ``holding`` shows it in the cells of ``report``.

    None where the cluster never reported any cells. Where the certificate is UNPROVEN the steps
    only keep others away.
    """

    cluster: str
    report: ReportId | None
    holding: Holding

    @property
    def certificate(self) -> PromiseCertificate:
        return self.holding.outstanding.certificate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ask:
    """What a decision wants of one cluster: all that the binding has outstanding there after it.

    ``room`` still holds what the binding had before; None where the cluster reported no pools.
    """

    cluster: str
    room: Room | None
    outstanding: tuple[Outstanding, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reserved:
    """Every ask is promised: the promises, and the rooms with them, by cluster name."""

    promises: tuple[Promise, ...]
    rooms: Mapping[str, Room]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Promised:
    """Every ask is promised: the promises, and the fleet's rooms with them."""

    promises: tuple[Promise, ...]
    fleet: FleetRooms


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing is promised to anybody. ``reasons`` say why, for people, by cluster name."""

    reasons: Mapping[str, str]


def certificate_for(
    asked: Certificate | None, room: Room | None, requirements: ReplicaRequirements
) -> PromiseCertificate:
    """What a promise in a cluster will be worth if there is room; careful where nothing was asked.

    Without a placer of ours nobody would follow a plan, so what is asked for then is careful too.
    """
    if room is None or not room.can_tell(requirements):
        return PromiseCertificate.UNPROVEN
    if asked is Certificate.STRICT:
        return PromiseCertificate.STRICT
    if asked is Certificate.CAREFUL or not room.follows_claims:
        return PromiseCertificate.CAREFUL
    return PromiseCertificate.PLANNED


def packable_c(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    asked: Certificate | None,
    own: Mapping[int, tuple[Room, int]],
) -> IntArray:
    """How many more replicas can be promised in each cluster (axis c), 0..MAX_REPLICAS.

    0 where the cells cannot tell. ``own`` has, for every cluster where the binding is, the room
    without it and how many of its replicas need some there: they come first.
    """
    most_c: IntArray = simple_lower_bounds(fleet.filled, requirements)
    if asked is not Certificate.STRICT:
        careful_c = ~fleet.planned_c | (asked is Certificate.CAREFUL)
        spread_c = simple_lower_bounds(fleet.spread, requirements)
        np.minimum(most_c, spread_c, out=most_c, where=careful_c)
    looked_at_c = fleet.special_c | (asked is Certificate.STRICT)
    for position in np.flatnonzero(looked_at_c & (most_c > 0)).tolist():
        room = fleet.rooms[position]
        if position not in own and room is not None:
            certificate = certificate_for(asked, room, requirements)
            most_c[position] = room.most(requirements, certificate, int(most_c[position]))
    for position, (room, replicas) in own.items():
        certificate = certificate_for(asked, room, requirements)
        most = room.most(requirements, certificate, MAX_REPLICAS)
        most_c[position] = max(0, most - replicas)
    return most_c


def promise(
    fleet: FleetRooms,
    names: Sequence[str],
    binding: str,
    asks: Mapping[int, tuple[Outstanding, ...]],
    *,
    allow_unproven: bool = False,
) -> Promised | Refused:
    """Promise a binding all it asks for, by cluster position, or nothing.

    ``names`` are the fleet's clusters by position. ``asks`` are all that the binding has
    outstanding in a cluster after the decision; nothing lets go of the cluster.
    """
    reserved = reserve(
        binding,
        [
            Ask(cluster=names[c], room=fleet.rooms[c], outstanding=outstanding)
            for c, outstanding in asks.items()
            if outstanding
        ],
        allow_unproven=allow_unproven,
    )
    if isinstance(reserved, Refused):
        return reserved
    changes: dict[int, Room] = {}
    for position, outstanding in asks.items():
        room = fleet.rooms[position]
        if room is not None:
            changes[position] = (
                reserved.rooms[names[position]] if outstanding else room.without(binding)
            )
    return Promised(promises=reserved.promises, fleet=fleet.with_rooms(changes))


def reserve(
    binding: str, asks: Sequence[Ask], *, allow_unproven: bool = False
) -> Reserved | Refused:
    """Promise all asks of a binding, or none.

    The binding's own earlier outstanding is free for it. What does not grow is always promised
    again: it was, and to refuse would not make it go away.
    """
    promises: list[Promise] = []
    rooms: dict[str, Room] = {}
    reasons: dict[str, str] = {}
    for ask in asks:
        grown = _grown(binding, ask)
        unproven = [each for each in grown if each.certificate is PromiseCertificate.UNPROVEN]
        if unproven and not allow_unproven:
            reasons[ask.cluster] = "nothing shows whether there is room"
        elif ask.room is None:
            holdings = [Holding(outstanding=each, steps=()) for each in ask.outstanding]
            promises += [
                Promise(cluster=ask.cluster, report=None, holding=each) for each in holdings
            ]
        else:
            room = _room_with(binding, ask.room, ask.outstanding, grown)
            if isinstance(room, str):
                reasons[ask.cluster] = room
                continue
            rooms[ask.cluster] = room
            promises += [
                Promise(cluster=ask.cluster, report=room.report, holding=each)
                for each in room.holdings
                if each.outstanding.binding == binding
            ]
    return Refused(reasons=reasons) if reasons else Reserved(promises=tuple(promises), rooms=rooms)


def _room_with(
    binding: str, room: Room, wanted: Sequence[Outstanding], grown: Sequence[Outstanding]
) -> Room | str:
    """The room with what the binding wants in place of what it had, or why it has none for that."""
    if not grown:
        return _confirmed(binding, room, wanted)
    if room.overcommitted:
        return _overcommitted_text(room)
    made = room.without(binding).with_all(each for each in wanted if each not in grown)
    for each in grown:
        if each.certificate is not PromiseCertificate.UNPROVEN:
            most = made.most(each.requirements, each.certificate, each.to_pack)
            if most < each.to_pack:
                return f"{most} of {each.to_pack} replicas find room"
        made = made.with_one(each)
    # What is credited needs no room of its own, but may come before its place is free.
    if made.holds_strict and not strict_promises_hold(
        made.pools, contenders(made.pools, made.outstanding)
    ):
        return "strict promises would no longer be sure of their room"
    return made


def _confirmed(binding: str, room: Room, wanted: Sequence[Outstanding]) -> Room:
    """The room with no more than it had for the binding, in the same places.

    Where packing less makes the rest fit worse, which it can, the room is left as it was.
    """
    if [each for each in room.outstanding if each.binding == binding] == list(wanted):
        return room
    left = {(each.component, each.shape): each for each in wanted}
    kept = [
        left.get((each.component, each.shape)) if each.binding == binding else each
        for each in room.outstanding
    ]
    made = Room.of(
        room.report,
        room.pools,
        [each for each in kept if each is not None],
        follows_claims=room.follows_claims,
    )
    return room if made.overcommitted and not room.overcommitted else made


def _grown(binding: str, ask: Ask) -> tuple[Outstanding, ...]:
    """What the binding wants more of than it had, or a stricter promise of."""
    had: dict[tuple[str, Shape], Outstanding] = {}
    if ask.room is not None:
        had = {
            (each.component, each.shape): each
            for each in ask.room.outstanding
            if each.binding == binding
        }
    grown = []
    for each in ask.outstanding:
        before = had.get((each.component, each.shape))
        if before is None or not _covers(before, each):
            grown.append(each)
    return tuple(grown)


def _covers(before: Outstanding, wanted: Outstanding) -> bool:
    return (
        before.requirements.node_claim == wanted.requirements.node_claim
        and before.to_pack >= wanted.to_pack
        and before.in_cells >= wanted.in_cells
        and (
            wanted.certificate is not PromiseCertificate.STRICT
            or before.certificate is PromiseCertificate.STRICT
        )
    )


def _overcommitted_text(room: Room) -> str:
    without_room = sum(each.unplaced for each in room.overcommitted)
    return f"the cluster is over-committed: {without_room} promised replicas find no room"


def _is_planned(room: Room | None) -> bool:
    return room is not None and room.follows_claims


def _is_special(room: Room | None) -> bool:
    return room is not None and (bool(room.overcommitted) or room.holds_strict)
