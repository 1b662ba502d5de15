"""Promises: each an explicit packing into one report's cells, with what it is worth.

Pure. Must not keep what it promises: the caller commits, or forgets the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from federation.capacity.assignments import Held
from federation.capacity.batch_packing import (
    Promised,
    promised_together,
    shortage,
    simple_asks,
)
from federation.capacity.careful import (
    CAREFULLY,
    PromiseTerms,
    RoomLimit,
    RoomLimits,
    careful_beside_large,
    careful_c,
)
from federation.capacity.cluster_room import (
    LateInOrder,
    Packer,
    Repacking,
    Room,
    answered_together,
    certificate_for,
)
from federation.capacity.crowded import surely_promised
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.strict_bounds import strict_promises_hold
from federation.model.arrays import IntArray
from federation.model.placement import Certificate
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.shapes import Shape
from federation.model.workload import ReplicaRequirements

# By the position of a cluster and what is left in it.
PackedRooms: TypeAlias = dict[Hashable, Room]

__all__ = [
    "FleetRooms",
    "PackedRooms",
    "Promised",
    "Refused",
    "certificate_for",
    "packable",
    "packable_c",
    "promise",
    "promise_less",
    "promised",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Nothing is promised to anybody. ``reasons`` say why by cluster name."""

    reasons: Mapping[str, Reason]


def packable_c(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    asked: Certificate | None,
    own: Mapping[int, tuple[Room, int]],
) -> IntArray:
    """``packable`` without reasons."""
    return packable(fleet, requirements, asked, own)[0]


def packable(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    asked: Certificate | None,
    own: Mapping[int, tuple[Room, int]],
    *,
    leaves_large: bool = True,
) -> tuple[IntArray, Mapping[int, Reason]]:
    """How many more replicas can be promised in each cluster (axis c), 0..MAX_REPLICAS; by position
    for what room is kept where it is.

    0 where the cells cannot tell. Of promises that are not strict some are kept back, as
    ``careful`` says. ``own`` has, for every cluster where the binding is, the room without it and
    how many of its replicas need some there: they come first. Unless it ``leaves_large``, room for
    large pods is not looked at.
    """
    reasons: dict[int, Reason] = {}
    if asked is Certificate.STRICT:
        filled_c, spread_c = fleet.most_by_view(requirements)
        # Spreading finds less where promises that lost their room keep nodes from others.
        most_c = np.minimum(filled_c, spread_c)
    elif leaves_large:
        most_c, reasons = careful_beside_large(fleet, requirements)
    else:
        most_c = careful_c(fleet, requirements)
    is_strict_c = np.full(len(fleet), asked is Certificate.STRICT)
    looked_at_c = (fleet.strict_c | is_strict_c) & (most_c > 0)
    looked_at_c[list(own)] = False
    if looked_at_c.any():
        strict_c = fleet.strict_most_c(requirements, is_strict_c, most_c * looked_at_c)
        most_c = np.where(looked_at_c, strict_c, most_c)
    for position, (room, replicas) in own.items():
        certificate = certificate_for(asked, room, requirements)
        most_c[position] = max(0, room.packable(requirements, certificate) - replicas)
        reasons.pop(position, None)
    return most_c, reasons


def promise(
    fleet: FleetRooms,
    names: Sequence[str],
    binding: str,
    asks: Mapping[int, tuple[Outstanding, ...]],
    own: Collection[int],
    terms: PromiseTerms = CAREFULLY,
    *,
    allow_unproven: bool = False,
) -> FleetRooms | Refused:
    """``promised``, and the fleet with that."""
    taken = promised(fleet, names, binding, asks, own, terms, allow_unproven=allow_unproven)
    return taken if isinstance(taken, Refused) else taken()


def promised(
    fleet: FleetRooms,
    names: Sequence[str],
    binding: str,
    asks: Mapping[int, tuple[Outstanding, ...]],
    own: Collection[int],
    terms: PromiseTerms = CAREFULLY,
    *,
    allow_unproven: bool = False,
    pack: Packer | None = None,
    late: LateInOrder | None = None,
) -> Promised | Refused:
    """Promise a binding all it asks for, by cluster position, or nothing.

    ``names`` are the fleet's clusters by position. ``asks`` are all that the binding has
    outstanding in a cluster after the decision; nothing lets go of the cluster. What it had
    outstanding before, in the clusters at ``own``, is free for it. What does not grow is always
    promised again: it was, and to refuse would not make it go away. What grows stays within what
    the ``terms`` leave available. ``pack`` is as for
    ``answered_together``. With ``late``, in place of ``late_in_order``, what is promised is packed
    in all orders only once the fleet with it is asked for.
    """
    limits = RoomLimits(fleet, terms)
    simple = simple_asks(fleet, asks, own)
    within = limits.within(simple)
    simple = {c: wanted for c, wanted in simple.items() if c in within}
    together = promised_together(fleet, simple)
    if isinstance(together, dict):
        # Some of these may be promised after all.
        simple = {c: wanted for c, wanted in simple.items() if c not in together}
        together = promised_together(fleet, simple)
    reasons = together if isinstance(together, dict) else {}
    rooms: dict[int, Room] = {}
    kept = {c for c in own if c in asks and _holds_just(fleet.held[c], binding, asks[c])}
    others = asks.keys() - simple.keys() - kept
    sure = frozenset[int]()
    if late:
        sure = surely_promised(fleet, binding, asks, others, late, limits)
    answer = partial(
        _answers, fleet, binding, asks, limits, allow_unproven=allow_unproven, pack=pack
    )
    for position, found in answer(others - sure).items():
        if isinstance(found, Reason):
            reasons[position] = found
        elif found is not None:
            rooms[position] = found
    if reasons or isinstance(together, dict):
        return Refused(reasons={names[c]: reasons[c] for c in asks if c in reasons})
    before = together

    def with_all() -> FleetRooms:
        more = {c: room for c, room in answer(sure).items() if isinstance(room, Room)}
        if len(more) < len(sure):
            raise LookupError(f"what was surely promised to {binding} is refused")
        return before().with_rooms(rooms | more)

    return with_all if rooms or sure else before


def _answers(
    fleet: FleetRooms,
    binding: str,
    asks: Mapping[int, tuple[Outstanding, ...]],
    limits: RoomLimits,
    positions: Iterable[int],
    *,
    allow_unproven: bool,
    pack: Packer | None,
) -> Mapping[int, Room | Reason | None]:
    """What ``_promised`` says at some positions."""
    asking = {
        position: _promised(
            _Ask(
                binding=binding,
                position=position,
                room=fleet.rooms[position],
                wanted=asks[position],
            ),
            limits,
            allow_unproven=allow_unproven,
        )
        for position in positions
    }
    return answered_together(asking, pack)


def _holds_just(held: Held | None, binding: str, wanted: tuple[Outstanding, ...]) -> bool:
    """Whether that is what the binding has outstanding in a cluster, so that nothing changes."""
    if held is None or not wanted:
        return False
    return wanted == tuple(
        [each.outstanding for each in held.every if each.outstanding.binding == binding]
    )


def promise_less(
    fleet: FleetRooms,
    names: Sequence[str],
    asks: Mapping[str, Mapping[int, tuple[Outstanding, ...]]],
    packed: PackedRooms,
    *,
    allow_unproven: bool = False,
) -> FleetRooms | Refused:
    """``promise`` to many bindings that lose some of what they have: all that each has outstanding
    after it, by binding and cluster position.

    Each cluster is packed once for all of them, but for those that get more of something else; and
    not again where it is among those ``packed`` for this fleet, which it is kept among.
    """
    before = fleet
    less: dict[int, dict[str, tuple[Outstanding, ...]]] = {}
    for binding, wanted_c in asks.items():
        known = {
            c: _Ask(binding=binding, position=c, room=fleet.rooms[c], wanted=w)
            for c, w in wanted_c.items()
        }
        if any(ask.grown for ask in known.values()):
            own = [position for position, ask in known.items() if ask.had]
            taken = promise(fleet, names, binding, wanted_c, own, allow_unproven=allow_unproven)
            if isinstance(taken, Refused):
                return taken
            fleet = taken
        else:
            for position, wanted in wanted_c.items():
                less.setdefault(position, {})[binding] = wanted
    if fleet is not before:
        packed = {}
    keys = {position: _left_in(position, wanted) for position, wanted in less.items()}
    rooms = fleet.rooms
    asking = {
        position: _lessened(room, wanted)
        for position, wanted in less.items()
        if keys[position] not in packed and (room := rooms[position])
    }
    packed |= {keys[position]: room for position, room in answered_together(asking).items()}
    return fleet.with_rooms({c: packed[key] for c, key in keys.items() if key in packed})


def _left_in(position: int, wanted: Mapping[str, tuple[Outstanding, ...]]) -> Hashable:
    """Equal where these bindings have as much left in a cluster; rooms keep the requirements."""
    return position, frozenset(
        (binding, tuple((each.component, id(each.requirements), each.to_pack) for each in every))
        for binding, every in wanted.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ask:
    """What a binding wants of the cluster at a ``position``, whose ``room`` still has what it had
    before.
    """

    binding: str
    position: int
    room: Room | None
    wanted: tuple[Outstanding, ...]

    @property
    def grown(self) -> tuple[Outstanding, ...]:
        """What it wants more of than it had, or a stricter promise of."""
        had = self.had
        grown = []
        for each in self.wanted:
            before = had.get((each.component, each.shape))
            if before is None or not _covers(before, each):
                grown.append(each)
        return tuple(grown)

    @property
    def had(self) -> dict[tuple[str, Shape], Outstanding]:
        every = self.room.holdings_of(self.binding) if self.room else ()
        return {
            (each.outstanding.component, each.outstanding.shape): each.outstanding for each in every
        }


def _promised(
    ask: _Ask, limits: RoomLimits, *, allow_unproven: bool
) -> Repacking[Room | Reason | None]:
    """The room with what is wanted, None where there is no room to show it, or why not."""
    grown = ask.grown
    unproven = [each for each in grown if each.certificate is PromiseCertificate.UNPROVEN]
    if unproven and not allow_unproven:
        return Reason(ReasonCode.NOTHING_SHOWS_ROOM)
    if ask.room is None:
        return None
    if not ask.wanted:
        return (yield from ask.room.leaving(ask.binding))
    if not grown:
        return (yield from _confirmed(ask.room, {ask.binding: ask.wanted}))
    return (yield from _grown_room(ask, ask.room, grown, limits))


def _grown_room(
    ask: _Ask, room: Room, grown: Sequence[Outstanding], limits: RoomLimits
) -> Repacking[Room | Reason]:
    """The room with what the binding wants in place of what it had, or why it has none for that."""
    made = yield from room.leaving(ask.binding)
    made = made.with_all(each for each in ask.wanted if each not in grown)
    if made is not room and made.stuck(ask.binding) > room.stuck(ask.binding):
        return Reason(ReasonCode.STRANDS_OTHERS)
    if limits.lacks_set(made, grown):
        return Reason(ReasonCode.NO_WHOLE_SET)
    for each in grown:
        if each.certificate.is_packed:
            after = yield from _with_packed(made, each, limits.lacks(made, ask.position, each))
            if isinstance(after, Reason):
                return after
            made = after
        else:
            made = made.with_one(each)
    # What is credited needs no room of its own, but may come before its place is free.
    if made.holds_strict and not strict_promises_hold(made.pools, made.contending):
        return Reason(ReasonCode.STRICT_UNSURE)
    return made


def _with_packed(
    room: Room, wanted: Outstanding, lacks: RoomLimit | None
) -> Repacking[Room | Reason]:
    """The room with all of what is wanted, or why it is refused; ``lacks`` says how little of it
    may be promised where not all may.
    """
    if lacks is not None:
        return lacks.shortage(wanted.to_pack)
    most_filled, most_spread = room.most_by_view(wanted.requirements)
    if not room.held.arrived and most_filled >= wanted.to_pack:
        return room.with_one(wanted)
    made = yield from room.rearranging((*room.outstanding, wanted))
    if made.stuck() > room.stuck():
        return shortage(min(most_filled, most_spread), wanted)
    return made


def _lessened(room: Room, wanted: Mapping[str, tuple[Outstanding, ...]]) -> Repacking[Room]:
    """The room where these bindings have no more than this outstanding."""
    gone = {key for key, each in wanted.items() if not each}
    kept = tuple(each for each in room.outstanding if each.binding not in gone)
    if len(kept) < len(room.holdings):
        room = yield room, kept
    return (yield from _confirmed(room, {key: each for key, each in wanted.items() if each}))


def _confirmed(room: Room, wanted: Mapping[str, tuple[Outstanding, ...]]) -> Repacking[Room]:
    """The room with no more than it had for these bindings, in the same places.

    Where packing less makes the rest fit worse, which it can, the room is left as it was.
    """
    had = room.outstanding
    left = {_part(each): each for every in wanted.values() for each in every}
    kept_or_not = (left.get(_part(each)) if each.binding in wanted else each for each in had)
    kept = tuple(each for each in kept_or_not if each is not None)
    if kept == had:
        return room
    made = yield room, kept
    return room if made.stuck() > room.stuck() else made


def _part(outstanding: Outstanding) -> tuple[str, str, Shape]:
    return outstanding.binding, outstanding.component, outstanding.shape


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
