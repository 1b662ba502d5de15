"""Promises, ledgers and echoes where no store keeps them: the obvious way, all of it each time.

Must not be fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from federation.agents.interests import interest_of
from federation.capacity.assignments import Assignment
from federation.capacity.careful import WHATEVER_FITS, PromiseTerms
from federation.capacity.cluster_room import ReportId
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.ledger import ClusterLedger
from federation.capacity.reserve import Refused, promise
from federation.model.echoes import (
    Interest,
    Lookout,
    Owner,
    PodSighting,
    SightingState,
    reservation_of,
)
from federation.model.reservations import Outstanding, PromiseCertificate, Share
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledgers of a fleet's clusters, by name."""

    clusters: Mapping[str, ClusterLedger] = field(default_factory=dict)

    def of(self, cluster: str) -> ClusterLedger:
        """The ledger of a cluster, empty where nothing was ever reserved."""
        return self.clusters.get(cluster) or ClusterLedger(cluster=cluster)

    def decided(
        self,
        binding: str,
        decision: str,
        shares: Mapping[str, Sequence[Share]],
        adopted: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Ledger:
        """With a decision's shares by cluster; clusters it leaves out let go of the binding."""
        changed = {
            name: self.of(name).decided(binding, decision, given, (adopted or {}).get(name))
            for name, given in shares.items()
        }
        left = {
            name: ledger.released(binding)
            for name, ledger in self.clusters.items()
            if ledger.of_binding(binding) and name not in shares
        }
        return Ledger(clusters={**self.clusters, **changed, **left})

    def released(self, binding: str) -> Ledger:
        """Without the binding, in every cluster."""
        return self.decided(binding, "", {})

    def reported(self, cluster: str, interest_version: int, echoes: Iterable[Echo]) -> Ledger:
        """With the echoes of a cluster's newest report."""
        ledger = self.of(cluster).reported(interest_version, echoes)
        return Ledger(clusters={**self.clusters, cluster: ledger})

    def clusters_of(self, binding: str) -> list[str]:
        """Where a binding has reservations."""
        return [name for name, each in self.clusters.items() if each.of_binding(binding)]


class Promise(NamedTuple):
    """What a binding holds in one cluster; ``holding`` shows it in the cells of ``report``."""

    cluster: str
    report: ReportId | None
    holding: Assignment

    @property
    def certificate(self) -> PromiseCertificate:
        return self.holding.outstanding.certificate


def asked_of(
    fleet: FleetRooms,
    names: Sequence[str],
    binding: str,
    asks: Mapping[int, tuple[Outstanding, ...]],
    terms: PromiseTerms = WHATEVER_FITS,
    *,
    allow_unproven: bool = False,
) -> FleetRooms | Refused:
    """Promise a binding what it asks for beside what it has; by default whatever fits."""
    own = [c for c in asks if (room := fleet.rooms[c]) and room.holdings_of(binding)]
    return promise(fleet, names, binding, asks, own, terms, allow_unproven=allow_unproven)


def promises_of(
    fleet: FleetRooms, names: Sequence[str], binding: str, positions: Iterable[int]
) -> list[Promise]:
    """What the binding holds in some clusters."""
    return [
        Promise(names[c], room.report, each)
        for c in positions
        if (room := fleet.rooms[c]) is not None
        for each in room.holdings_of(binding)
    ]
