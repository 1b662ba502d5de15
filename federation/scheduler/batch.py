"""Bindings that are decided one after the other, and placed together or not at all.

The service and simulations call this with a batch of their own. Pure: must not store or wait.

    decide_each(batch: Batch, places: Places = NO_PLACES) -> tuple[int, ...]
    decide_moves(batch: Batch) -> None
    settle_gang(batch: Batch, gang: Gang, missed: Sequence[int], gate: Reason) -> None
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from federation.model.placement import Binding, Gang
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, Word
from federation.scheduler.demand import Demand
from federation.scheduler.waiting.gangs import unplaced_reason

# Names of clusters, by the position of a binding in its batch.
Places: TypeAlias = Mapping[int, frozenset[str]]
NO_PLACES: Final[Places] = MappingProxyType({})


class Batch(Protocol):
    """Bindings that share one capacity, and what was decided of each so far.

    ``remaining`` are the bindings without the clusters that they have to leave.
    """

    @property
    def count(self) -> int:
        """Return how many bindings there are."""
        ...

    @property
    def remaining(self) -> Sequence[Binding]: ...

    def decide(self, position: int, places: Places) -> bool:
        """Decide a binding; return whether it has a place.

        Those before it count where they went. The others count at ``places``, and so do those
        before it that have no place.
        """
        ...

    def room(self, position: int, places: Places) -> Mapping[str, int]:
        """Return how many of its units each cluster could take, while others count at places."""
        ...

    def lack(self, position: int) -> Reason:
        """Return what a binding without a place lacks."""
        ...

    def undo(self) -> None:
        """Give back all that was taken for the batch. Its decisions stay readable."""
        ...

    def withdraw(self, position: int, why: Reason) -> None:
        """Let nothing come of a decision, because of others.

        With NO_REASON its own reason says why already.
        """
        ...


def decide_each(batch: Batch, places: Places = NO_PLACES) -> tuple[int, ...]:
    """Decide all bindings; return the positions of those without a place.

    A binding that is not decided yet counts at ``places``.
    """
    return tuple(
        [position for position in range(batch.count) if not batch.decide(position, places)]
    )


def decide_moves(batch: Batch) -> None:
    """Decide bindings that go together: all of them get a place, or all stay where they are.

    Where the decisions one by one leave a binding without a place, each cluster is tried that
    could take all of them.
    """
    remaining = batch.remaining
    staying = {position: _names(binding) for position, binding in enumerate(remaining)}
    missed = decide_each(batch, staying)
    if not missed:
        return
    batch.undo()
    rooms = [batch.room(position, staying) for position in staying]
    common = common_clusters(rooms, [Demand.of(binding).units for binding in remaining])
    for name in common:
        if not decide_each(batch, dict.fromkeys(staying, frozenset((name,)))):
            return
        batch.undo()
    if common:
        # The first try looked at all clusters: the reasons are those of that try.
        missed = decide_each(batch, staying)
        batch.undo()
    why = stays_reason(remaining[missed[0]].name, batch.lack(missed[0]))
    _withdraw_all(batch, why, missed)


def settle_gang(batch: Batch, gang: Gang, missed: Sequence[int], gate: Reason = NO_REASON) -> None:
    """Let a gang have its places where it has all of them, and wait otherwise.

    The positions ``missed`` have no place. ``gate`` says what the whole gang waits for.
    """
    if gate:
        why, missed = gate, ()
    elif missed:
        name, lack = batch.remaining[missed[0]].name, batch.lack(missed[0])
        why = unplaced_reason(gang, name, lack, len(missed) - 1)
    else:
        return
    batch.undo()
    _withdraw_all(batch, why, missed)


def _withdraw_all(batch: Batch, why: Reason, missed: Sequence[int]) -> None:
    for position in range(batch.count):
        batch.withdraw(position, NO_REASON if position in missed else why)


def _names(binding: Binding) -> frozenset[str]:
    return frozenset(target.name for target in binding.clusters)


# Each one costs a decision for every binding of the group.
MAX_COMMON_CLUSTERS: Final = 10


def stays_reason(name: str, why: Reason) -> Reason:
    """Return why a binding stays: another one of its group, of that name, has no place."""
    return Reason.of(ReasonCode.COMPANION_STAYS, Word(name), why)


def common_clusters(rooms: Sequence[Mapping[str, int]], units: Sequence[int]) -> list[str]:
    """Return the clusters where each binding alone has capacity for all its units, at most
    MAX_COMMON_CLUSTERS: first those that leave most capacity to the binding with the least.

    ``rooms`` says by cluster how many units of each binding fit.
    """
    spare: dict[str, int] = {}
    for room, count in zip(rooms, units, strict=True):
        for name, replicas in room.items():
            spare[name] = min(spare.get(name, replicas - count), replicas - count)
    common = [
        name for name, least in spare.items() if least >= 0 and all(name in room for room in rooms)
    ]
    return sorted(common, key=lambda name: (-spare[name], name))[:MAX_COMMON_CLUSTERS]
