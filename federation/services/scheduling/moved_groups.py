"""Groups of bindings that stay together by workload affinity and have to leave clusters.

A group moves as a whole, or stays. Plain functions of their arguments, for one thread of their own.
Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias
from uuid import uuid4

from federation.model.placement import Binding, groups_of
from federation.scheduler.common_clusters import common_clusters, stays_reason
from federation.scheduler.demand import Demand
from federation.scheduler.state import Surroundings
from federation.scheduler.triggers import evicting_taints, leaving
from federation.services.binding_ports import Peers
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.decide import refuse, standing_of
from federation.services.scheduling.deciding import decide_anew
from federation.services.scheduling.hooks import let_go
from federation.services.scheduling.seeing import seen_by
from federation.services.scheduling.working_copy import WorkingCopy

# An attempt of the same group, and where it counts.
Companion: TypeAlias = tuple[Attempt, frozenset[str]]
_Places: TypeAlias = Callable[[Attempt], frozenset[str]]


def moved_attempts(bindings: Iterable[Binding]) -> list[Attempt]:
    """Make attempts at moves that are committed together, or not at all."""
    batch = str(uuid4())
    return [
        Attempt(binding=binding, is_moved=True, place=place, atomic=batch)
        for place, binding in enumerate(bindings, start=1)
    ]


def moves_as_group(attempts: Sequence[Attempt]) -> bool:
    """Whether these are the moves of one group."""
    return bool(attempts) and bool(attempts[0].atomic) and attempts[0].is_moved


def decide_moves(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> None:
    """Decide the moves one after the other, and once more for each cluster that could take all of
    them where that leaves one without a place. The whole group stays where none of that helps.
    """

    def staying(attempt: Attempt) -> frozenset[str]:
        taints = evicting_taints(attempt.candidate, working.snapshot.fleet_at(now), now)
        return _names(leaving(attempt.candidate, taints))

    if _all_move(working, attempts, now, staying):
        return
    working.forget()
    rooms = [_room(working, attempt, attempts, staying, now) for attempt in attempts]
    units = [Demand.of(attempt.candidate).units for attempt in attempts]
    tried = common_clusters(rooms, units)
    for name in tried:
        if _all_move(working, attempts, now, partial(_in_cluster, name)):
            return
        working.forget()
    if tried:
        # The reasons are those of the first try: it looked at all clusters.
        _all_move(working, attempts, now, staying)
        working.forget()
    _leave_in_place(attempts)


def peers_beside(attempt: Attempt, companions: Iterable[Companion]) -> Peers:
    """The peers of an attempt as they were read, with its companions where they are by now."""
    group, anti_group = groups_of(attempt.candidate)
    if not (group or anti_group):
        return attempt.peers
    together, apart = [*attempt.peers.affinity], [*attempt.peers.anti_affinity]
    for companion, names in companions:
        if companion.binding.namespace != attempt.binding.namespace:
            continue
        its_group, its_anti_group = groups_of(companion.candidate)
        before = _names(companion.known.binding) if companion.known else frozenset[str]()
        for own, other, places in (
            (group, its_group, together),
            (anti_group, its_anti_group, apart),
        ):
            if own and own == other:
                if before in places:
                    places.remove(before)
                if names:
                    places.append(names)
    return Peers(affinity=tuple(together), anti_affinity=tuple(apart))


def _all_move(
    working: WorkingCopy, attempts: Sequence[Attempt], now: float, places: _Places
) -> bool:
    """Whether each found a place; ``places`` says where those count that are not decided yet."""
    for attempt in attempts:
        if attempt.quota is not None:
            attempt.quota.used = attempt.quota.read
    for position, attempt in enumerate(attempts):
        companions = [(each, places_of(each)) for each in attempts[:position]]
        companions += [(each, places(each)) for each in attempts[position + 1 :]]
        decide_anew(working, attempt, now, peers_beside(attempt, companions))
    return all(attempt.error is None and attempt.is_placed for attempt in attempts)


def places_of(attempt: Attempt) -> frozenset[str]:
    """The clusters that its decision chose."""
    if attempt.error is not None or not attempt.is_placed:
        return frozenset()
    return frozenset(target.name for target in attempt.verdict.decision.clusters)


def _room(
    working: WorkingCopy,
    attempt: Attempt,
    attempts: Sequence[Attempt],
    staying: _Places,
    now: float,
) -> dict[str, int]:
    """How many of its units each cluster could take, wherever its group goes."""
    peers = peers_beside(attempt, [(e, staying(e)) for e in attempts if e is not attempt])
    around = Surroundings(
        affinity_peers=peers.affinity,
        anti_affinity_peers=peers.anti_affinity,
        observed_affinity=attempt.known.observed_affinity if attempt.known else "",
    )
    taints = evicting_taints(attempt.candidate, working.snapshot.fleet_at(now), now)
    binding = leaving(attempt.candidate, taints)
    return dict(seen_by(working, binding, attempt.profile, around, now).room)


def _leave_in_place(attempts: Sequence[Attempt]) -> None:
    """Refuse those that have a place, because of the first that has none."""
    lacking = next(each for each in attempts if each.error or not each.is_placed)
    why = stays_reason(lacking.binding.name, lacking.lack)
    for attempt in attempts:
        attempt.requested = attempt.reserved = None
        let_go([attempt])
        if attempt.error is None and attempt.is_placed:
            refuse(attempt, {"": why})
        if attempt.error is None:
            attempt.standing = standing_of(attempt)


def _in_cluster(name: str, _: Attempt) -> frozenset[str]:
    return frozenset((name,))


def _names(binding: Binding) -> frozenset[str]:
    return frozenset(target.name for target in binding.clusters)
