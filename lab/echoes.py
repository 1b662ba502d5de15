"""What agents have to look for, and what they count of it: the obvious way, all of it each time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from federation.agents.interests import interest_of
from federation.capacity.ledger import ClusterLedger
from federation.model.echoes import (
    Interest,
    Lookout,
    Owner,
    PodSighting,
    SightingState,
    reservation_of,
)
from federation.model.shapes import Echo, ReservationKey


def interests_of(
    ledger: ClusterLedger, owners: Mapping[str, Owner], uids: Mapping[str, str]
) -> tuple[Interest, ...]:
    """What the agent of a cluster has to look for; ``owners``, ``uids`` by binding, where known."""
    return tuple(
        interest_of(ledger, binding, owners.get(binding), uids.get(binding, ""))
        for binding in ledger.bindings()
    )


def interests_by_name(ledger: ClusterLedger) -> tuple[Interest, ...]:
    """The same where a binding's uid is its name and nobody looks for owners."""
    return interests_of(ledger, {}, {name: name for name in ledger.bindings()})


def echoes_of(interests: Iterable[Interest], pods: Iterable[PodSighting]) -> tuple[Echo, ...]:
    """What there is of every shape that is looked for, shapes without pods left out."""
    lookout = Lookout(interests)
    counted: dict[ReservationKey, Echo] = {}
    for pod in pods:
        key = reservation_of(lookout, pod)
        if key is not None:
            empty = Echo(binding=key.binding, component=key.component, shape=key.shape)
            counted[key] = _with_one(counted.get(key, empty), pod.state)
    return tuple(counted.values())


def _with_one(echo: Echo, state: SightingState) -> Echo:
    match state:
        case SightingState.BOUND:
            return replace(echo, bound=echo.bound + 1)
        case SightingState.UNBOUND:
            return replace(echo, unbound=echo.unbound + 1)
        case SightingState.FINISHED:
            return replace(echo, finished=echo.finished + 1)
