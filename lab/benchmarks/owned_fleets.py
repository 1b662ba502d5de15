"""Fleets in memory alone, as a control plane knows them: clusters, reports and promises.

Must not know what is measured.
"""

from __future__ import annotations

from random import Random
from typing import Any

from federation.model.cluster import Cluster
from federation.model.reservations import Share
from federation.model.workload import ReplicaRequirements
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, ClusterShares
from lab.benchmarks.members import capacity_report
from lab.fleet import cluster_name, varied_size

SIZES = [ReplicaRequirements(request=varied_size(number)) for number in range(500)]
TARGETS, REPLICAS = 3, 2


class Nothing:
    """Stands where no store, clock, agent or deadline is asked."""

    def now(self) -> float:
        return 0.0

    def time_remaining(self) -> None:
        return None


NOTHING: Any = Nothing()


def owned_fleet(clusters: int) -> FleetOwner:
    """A fleet of which every cluster has reported, and nothing is promised."""
    owner = FleetOwner(NOTHING)
    for number in range(clusters):
        name = cluster_name(number)
        owner.put_cluster(Cluster(name=name, uid=f"uid-{name}"))
        owner.put_report(name, capacity_report(number), 0.0)
    return owner


def place(owner: FleetOwner, number: int, choices: Random) -> None:
    """One more binding is promised replicas in three clusters; no agent has seen its pods."""
    share = Share(requirements=choices.choice(SIZES), replicas=REPLICAS)
    clusters = {
        name: ClusterShares(owner.version(name).version + 1, (share,))
        for name in choices.sample(owner.snapshot.names, TARGETS)
    }
    owner.apply(
        BindingChanged(
            namespace="bench", name=f"web-{number}", decision=f"d-{number}", clusters=clusters
        )
    )
