"""Promises: each an explicit packing into one report's cells, with what it is worth.

Pure. Must not keep what it promises: the caller commits, or forgets the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

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
    Repacking,
    Room,
    answered_together,
    certificate_for,
)
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.growth import PromiseChange, kept_in, of_binding
from federation.capacity.own_promises import NOTHING_OWN, OwnPromises, own_replicas
from federation.capacity.strict_bounds import strict_promises_hold
from federation.model.arrays import IntArray
from federation.model.placement import Certificate
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.model.reservations import Outstanding, PromiseCertificate
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
    own: OwnPromises = NOTHING_OWN,
) -> IntArray:
    """``packable`` without reasons."""
    return packable(fleet, requirements, asked, own)[0]


def packable(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    asked: Certificate | None,
    own: OwnPromises = NOTHING_OWN,
    *,
    leaves_large: bool = True,
) -> tuple[IntArray, Mapping[int, Reason]]:
    """How many more replicas can be promised in each cluster (axis c), 0..MAX_REPLICAS; by position
    for what room is kept where it is.

    0 where the cells cannot tell. Of promises that are not strict some are kept back, as
    ``careful`` says. ``own`` is what the binding holds, where it is. Unless it ``leaves_large``,
    room for large pods is not looked at; nor is it where the binding is.
    """
    reasons: dict[int, Reason] = {}
    repeated = {position: replicas for position, (replicas, _) in own.repeated.items()}
    if asked is Certificate.STRICT:
        filled_c, spread_c = fleet.most_by_view(requirements)
        # Spreading finds less where promises that lost their room keep nodes from others.
        most_c = np.minimum(filled_c, spread_c)
    elif leaves_large:
        most_c, reasons = careful_beside_large(fleet, requirements)
    else:
        most_c = careful_c(fleet, requirements)
    if repeated and asked is not Certificate.STRICT:
        places = list(repeated)
        most_c[places] = careful_c(fleet, requirements, repeated)[places]
    is_strict_c = np.full(len(fleet), asked is Certificate.STRICT)
    looked_at_c = (fleet.strict_c | is_strict_c) & (most_c > 0)
    looked_at_c[list(own.repacked)] = False
    if looked_at_c.any():
        strict_c = fleet.strict_most_c(requirements, is_strict_c, most_c * looked_at_c)
        most_c = np.where(looked_at_c, strict_c, most_c)
    most_c = own.with_own(most_c)
    for position, (room, replicas) in own.repacked.items():
        certificate = certificate_for(asked, room, requirements)
        max_replicas = room.packable(requirements, certificate) if room is not None else 0
        most_c[position] = max(0, max_replicas - replicas)
    return most_c, {
        position: reason
        for position, reason in reasons.items()
        if position not in own.repeated and position not in own.repacked
    }


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
) -> Promised | Refused:
    """Promise a binding all it asks for, by cluster position, or nothing.

    ``names`` are the fleet's clusters by position. ``asks`` are all that the binding has
    outstanding in a cluster after the decision; nothing lets go of the cluster. At ``own`` it had
    something outstanding before. What does not grow is always promised again: it was, and to
    refuse would not make it go away. It is packed once the fleet with it is asked for. Of what
    grows only the difference is packed, within what the ``terms`` leave available.
    """
    changes = {c: _change(fleet, c, binding, asks[c]) for c in asks if c in own}
    growing = {c: change for c, change in changes.items() if change.more}
    beside = {c: own_replicas(fleet, c, binding, change.had) for c, change in growing.items()}
    limits = RoomLimits(fleet, terms, beside)
    new_promises = _more_by_value(asks, changes)
    simple = simple_asks(fleet, new_promises)
    within = limits.within(simple)
    simple = {c: wanted for c, wanted in simple.items() if c in within}
    together = promised_together(fleet, simple)
    if isinstance(together, dict):
        # Some of these may be promised after all.
        simple = {c: wanted for c, wanted in simple.items() if c not in together}
        together = promised_together(fleet, simple)
    reasons = together if isinstance(together, dict) else {}
    apart = [c for c in asks.keys() - simple.keys() if c not in changes or c in growing]
    lessened = [c for c, change in changes.items() if not (change.more or change.is_in_place)]
    rooms: dict[int, Room] = {}
    answers = answered_together(
        {
            c: _promised(_ask(fleet, c, binding, asks[c]), limits, allow_unproven=allow_unproven)
            for c in apart
        }
    )
    for position, answer in answers.items():
        if isinstance(answer, Reason):
            reasons[position] = answer
        elif answer is not None:
            rooms[position] = answer
    if reasons or isinstance(together, dict):
        return Refused(reasons={names[c]: reasons[c] for c in asks if c in reasons})
    before = together

    def with_all() -> FleetRooms:
        less = answered_together({c: _less(_ask(fleet, c, binding, asks[c])) for c in lessened})
        return before().with_rooms(rooms | {c: room for c, room in less.items() if room})

    return with_all if rooms or lessened else before


def _ask(fleet: FleetRooms, position: int, binding: str, promises: tuple[Outstanding, ...]) -> _Ask:
    """The request of a binding to a cluster."""
    return _Ask(
        binding=binding,
        position=position,
        room=fleet.rooms[position],
        wanted=promises,
        change=_change(fleet, position, binding, promises),
    )


def _change(
    fleet: FleetRooms, position: int, binding: str, promises: tuple[Outstanding, ...]
) -> PromiseChange:
    """The change to a binding's promises in a cluster."""
    held = fleet.held[position]
    return PromiseChange.of(held.of_binding(binding) if held else (), promises)


def _more_by_value(
    asks: Mapping[int, tuple[Outstanding, ...]], changes: Mapping[int, PromiseChange]
) -> Mapping[int, tuple[Outstanding, ...]]:
    """The promises in addition to all that stay in their place; equal ones are one value."""
    if not changes:
        return asks
    values: dict[Hashable, tuple[Outstanding, ...]] = {}
    new_promises = {}
    for position, promises in asks.items():
        change = changes.get(position)
        if change is None:
            new_promises[position] = promises
        elif change.more and change.is_in_place:
            key = tuple([(id(part.requirements), *part[2:]) for part in change.more])
            new_promises[position] = values.setdefault(key, change.more)
    return new_promises


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
        changes = {c: _change(fleet, c, binding, promises) for c, promises in wanted_c.items()}
        if any(change.more for change in changes.values()):
            own = [position for position, change in changes.items() if change.had]
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
    """The request of a binding to the cluster at a ``position``.

    The ``room`` still has the binding's promises of before, to which the ``change`` applies.
    """

    binding: str
    position: int
    room: Room | None
    wanted: tuple[Outstanding, ...]
    change: PromiseChange


def _promised(
    ask: _Ask, limits: RoomLimits, *, allow_unproven: bool
) -> Repacking[Room | Reason | None]:
    """The room with what is wanted, None where there is no room to show it, or why not."""
    promises = ask.change.more
    unproven = [
        promise for promise in promises if promise.certificate is PromiseCertificate.UNPROVEN
    ]
    if unproven and not allow_unproven:
        return Reason(ReasonCode.NOTHING_SHOWS_ROOM)
    if ask.room is None or not promises:
        return (yield from _less(ask))
    return (yield from _grown_room(ask, ask.room, limits))


def _less(ask: _Ask) -> Repacking[Room | None]:
    """The room where the binding gets no more than it had."""
    if ask.room is None:
        return None
    if not ask.wanted:
        return (yield from ask.room.leaving(ask.binding))
    return (yield from _confirmed(ask.room, {ask.binding: ask.wanted}))


def _grown_room(ask: _Ask, room: Room, limits: RoomLimits) -> Repacking[Room | Reason]:
    """The room with more of the binding beside what stays of it, or why it has none for that."""
    packed, promises = room, ask.change.more
    if not ask.change.is_in_place:
        packed = yield room, kept_in(room.outstanding, {ask.binding: ask.change})
        if packed.stuck(ask.binding) > room.stuck(ask.binding):
            return Reason(ReasonCode.STRANDS_OTHERS)
    if limits.lacks_set(packed, promises):
        return Reason(ReasonCode.NO_WHOLE_SET)
    for promise in promises:
        if promise.certificate.is_packed:
            lacks = limits.lacks(packed, ask.position, promise)
            held = ask.change.kept_of(promise.component)
            after = yield from _with_packed(packed, promise, lacks, held)
            if isinstance(after, Reason):
                return after
            packed = after
        else:
            packed = packed.with_one(promise)
    # What is credited needs no room of its own, but may come before its place is free.
    if packed.holds_strict and not strict_promises_hold(packed.pools, packed.contending):
        return Reason(ReasonCode.STRICT_UNSURE)
    return packed


def _with_packed(
    room: Room, promise: Outstanding, lacks: RoomLimit | None, held: int
) -> Repacking[Room | Reason]:
    """The room with all replicas of the promise, or the reason of its refusal.

    The promise adds to ``held`` replicas. ``lacks`` is the limit where not all may be promised.
    """
    if lacks is not None:
        return lacks.shortage(promise.to_pack, held)
    most_filled, most_spread = room.most_by_view(promise.requirements)
    if most_filled >= promise.to_pack:
        return room.with_one(promise)
    packed = yield room, (*room.outstanding, promise)
    if packed.stuck() > room.stuck():
        return shortage(min(most_filled, most_spread), promise, held)
    return packed


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
    changes = {
        binding: PromiseChange.of(of_binding(had, binding), promises)
        for binding, promises in wanted.items()
    }
    remaining = kept_in(had, changes)
    if remaining == had:
        return room
    packed = yield room, remaining
    return room if packed.stuck() > room.stuck() else packed
