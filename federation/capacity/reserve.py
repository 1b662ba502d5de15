"""Reservation: packing of a binding's shares into the newest reports' free cells, or a refusal.

Pure. Must not store a promise: the caller commits the new fleet, or drops it.
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

# By the position of a cluster, and by the promises that remain in it.
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
    """A refusal: no cluster gets anything. ``reasons`` are by cluster name."""

    reasons: Mapping[str, Reason]


def packable_c(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    requested: Certificate | None,
    own: OwnPromises = NOTHING_OWN,
) -> IntArray:
    """Return ``packable`` without reasons."""
    return packable(fleet, requirements, requested, own)[0]


def packable(
    fleet: FleetRooms,
    requirements: ReplicaRequirements,
    requested: Certificate | None,
    own: OwnPromises = NOTHING_OWN,
    *,
    leaves_large: bool = True,
) -> tuple[IntArray, Mapping[int, Reason]]:
    """Return how many more replicas can be promised in each cluster (axis c), 0..MAX_REPLICAS.

    The second value says by position why room is kept back. 0 where the pools do not carry the
    labels of the claim. Unless strictly, a margin is kept back, as ``careful`` says. ``own`` are
    the promises of the binding; in its clusters no room is left for large pods. Unless
    ``leaves_large``, no cluster leaves room for them.
    """
    reasons: dict[int, Reason] = {}
    repeated = {position: replicas for position, (replicas, _) in own.repeated.items()}
    if requested is Certificate.STRICT:
        filled_c, spread_c = fleet.max_by_view(requirements)
        # Spreading fits fewer where stuck promises reserve nodes.
        max_c = np.minimum(filled_c, spread_c)
    elif leaves_large:
        max_c, reasons = careful_beside_large(fleet, requirements)
    else:
        max_c = careful_c(fleet, requirements)
    if repeated and requested is not Certificate.STRICT:
        places = list(repeated)
        max_c[places] = careful_c(fleet, requirements, repeated)[places]
    is_strict_c = np.full(len(fleet), requested is Certificate.STRICT)
    is_checked_c = (fleet.strict_c | is_strict_c) & (max_c > 0)
    is_checked_c[list(own.repacked)] = False
    if is_checked_c.any():
        strict_c = fleet.max_strict_c(requirements, is_strict_c, max_c * is_checked_c)
        max_c = np.where(is_checked_c, strict_c, max_c)
    max_c = own.with_own(max_c)
    for position, (room, replicas) in own.repacked.items():
        certificate = certificate_for(requested, room, requirements)
        fitting = room.packable(requirements, certificate) if room is not None else 0
        max_c[position] = max(0, fitting - replicas)
    return max_c, {
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
    """Return the fleet after ``promised``, or its refusal."""
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
    """Promise a binding all that it asks for, by cluster position, or refuse.

    ``names`` are the fleet's clusters by position. ``asks`` are all promises that the binding has
    in a cluster after the decision; a cluster that it leaves has none. At ``own`` it has promises
    already. A share that does not grow is always promised again, because a refusal would not
    undo it; it is packed once the new fleet is read. Of a share that grows only the difference is
    packed, within the limits of the ``terms``.
    """
    changes = {c: _change(fleet, c, binding, asks[c]) for c in asks if c in own}
    growing = {c: change for c, change in changes.items() if change.more}
    own_at = {c: own_replicas(fleet, c, binding, change.had) for c, change in growing.items()}
    limits = RoomLimits(fleet, terms, own_at)
    new_promises = _new_by_value(asks, changes)
    simple = simple_asks(fleet, new_promises)
    within = limits.within(simple)
    simple = {c: promises for c, promises in simple.items() if c in within}
    together = promised_together(fleet, simple)
    if isinstance(together, dict):
        # Some of the refused ones may be promised by a second look.
        simple = {c: promises for c, promises in simple.items() if c not in together}
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
    with_simple = together

    def with_all() -> FleetRooms:
        less = answered_together({c: _less(_ask(fleet, c, binding, asks[c])) for c in lessened})
        return with_simple().with_rooms(rooms | {c: room for c, room in less.items() if room})

    return with_all if rooms or lessened else with_simple


def _ask(fleet: FleetRooms, position: int, binding: str, promises: tuple[Outstanding, ...]) -> _Ask:
    """Return what a binding asks of one cluster."""
    return _Ask(
        binding=binding,
        position=position,
        room=fleet.rooms[position],
        promises=promises,
        change=_change(fleet, position, binding, promises),
    )


def _change(
    fleet: FleetRooms, position: int, binding: str, promises: tuple[Outstanding, ...]
) -> PromiseChange:
    """Return the change to a binding's promises in one cluster."""
    held = fleet.held[position]
    return PromiseChange.of(held.of_binding(binding) if held else (), promises)


def _new_by_value(
    asks: Mapping[int, tuple[Outstanding, ...]], changes: Mapping[int, PromiseChange]
) -> Mapping[int, tuple[Outstanding, ...]]:
    """Return the promises beyond those that stay in place; equal ones are one value."""
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
    """Promise many bindings less than they have: all promises of each after it, by position.

    A cluster is packed once for all of them, unless a binding gets more of something else there.
    Clusters that are among those ``packed`` for this fleet are not packed again; new ones are
    added to it.
    """
    original = fleet
    less: dict[int, dict[str, tuple[Outstanding, ...]]] = {}
    for binding, asks_c in asks.items():
        changes = {c: _change(fleet, c, binding, promises) for c, promises in asks_c.items()}
        if any(change.more for change in changes.values()):
            own = [position for position, change in changes.items() if change.had]
            taken = promise(fleet, names, binding, asks_c, own, allow_unproven=allow_unproven)
            if isinstance(taken, Refused):
                return taken
            fleet = taken
        else:
            for position, promises in asks_c.items():
                less.setdefault(position, {})[binding] = promises
    if fleet is not original:
        packed = {}
    keys = {position: _key_of(position, promises) for position, promises in less.items()}
    rooms = fleet.rooms
    repackings = {
        position: _lessened(room, promises)
        for position, promises in less.items()
        if keys[position] not in packed and (room := rooms[position])
    }
    packed |= {keys[position]: room for position, room in answered_together(repackings).items()}
    return fleet.with_rooms({c: packed[key] for c, key in keys.items() if key in packed})


def _key_of(position: int, remaining: Mapping[str, tuple[Outstanding, ...]]) -> Hashable:
    """Return a key for what remains of bindings in a cluster; rooms keep the requirements alive."""
    return position, frozenset(
        (
            binding,
            tuple((part.component, id(part.requirements), part.to_pack) for part in promises),
        )
        for binding, promises in remaining.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Ask:
    """The promises that a binding asks for in the cluster at a ``position``.

    ``room`` still has the binding's earlier promises, to which the ``change`` applies.
    """

    binding: str
    position: int
    room: Room | None
    promises: tuple[Outstanding, ...]
    change: PromiseChange


def _promised(
    ask: _Ask, limits: RoomLimits, *, allow_unproven: bool
) -> Repacking[Room | Reason | None]:
    """Return the capacity with the promises, None without one, or the reason of a refusal."""
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
    """Return the capacity after a change that adds nothing."""
    if ask.room is None:
        return None
    if not ask.promises:
        return (yield from ask.room.leaving(ask.binding))
    return (yield from _confirmed(ask.room, {ask.binding: ask.promises}))


def _grown_room(ask: _Ask, room: Room, limits: RoomLimits) -> Repacking[Room | Reason]:
    """Return the capacity with the additional promises, or the reason of a refusal."""
    packed, promises = room, ask.change.more
    if not ask.change.is_in_place:
        packed = yield room, kept_in(room.held.order, {ask.binding: ask.change})
        if packed.stuck(ask.binding) > room.stuck(ask.binding):
            return Reason(ReasonCode.STRANDS_OTHERS)
    if limits.lacks_set(packed, promises):
        return Reason(ReasonCode.NO_WHOLE_SET)
    for promise in promises:
        if promise.certificate.is_packed:
            shortfall = limits.lacks(packed, ask.position, promise)
            held = ask.change.kept_of(promise.component)
            result = yield from _with_packed(packed, promise, shortfall, held)
            if isinstance(result, Reason):
                return result
            packed = result
        else:
            packed = packed.with_one(promise)
    # Credited replicas need no room of their own, but their pods may start before it is free.
    if packed.holds_strict and not strict_promises_hold(packed.pools, packed.contending):
        return Reason(ReasonCode.STRICT_UNSURE)
    return packed


def _with_packed(
    room: Room, promise: Outstanding, shortfall: RoomLimit | None, held: int
) -> Repacking[Room | Reason]:
    """Return the capacity with all replicas of the promise, or the reason of a refusal.

    The promise adds to ``held`` replicas. ``shortfall`` is the limit, if it is too low.
    """
    if shortfall is not None:
        return shortfall.shortage(promise.to_pack, held)
    max_filled, max_spread = room.max_by_view(promise.requirements)
    if max_filled >= promise.to_pack:
        return room.with_one(promise)
    packed = yield room, room.order_anew(promise)
    if packed.stuck() > room.stuck():
        return shortage(min(max_filled, max_spread), promise, held)
    return packed.with_grouped(room.held.grouped)


def _lessened(room: Room, remaining: Mapping[str, tuple[Outstanding, ...]]) -> Repacking[Room]:
    """Return the capacity where bindings hold no more than the remaining promises."""
    gone = {binding for binding, promises in remaining.items() if not promises}
    staying = room.held.order.without(gone)
    if len(staying.promises) < len(room.holdings):
        room = yield room, staying
    lessened = {binding: promises for binding, promises in remaining.items() if promises}
    return (yield from _confirmed(room, lessened))


def _confirmed(room: Room, asks: Mapping[str, tuple[Outstanding, ...]]) -> Repacking[Room]:
    """Return the capacity where bindings hold no more than before, in the same places.

    Where the others fit worse after it, which happens, the capacity is returned unchanged.
    """
    order = room.held.order
    changes = {
        binding: PromiseChange.of(of_binding(order.promises, binding), promises)
        for binding, promises in asks.items()
    }
    remaining = kept_in(order, changes)
    if remaining == order:
        return room
    packed = yield room, remaining
    return room if packed.stuck() > room.stuck() else packed
