"""Requests that lost again and again are decided under locks of the clusters they concern."""

from __future__ import annotations

from dataclasses import replace

from federation.model.placement import (
    Binding,
    ClusterAffinity,
    Placement,
    PreemptionPolicy,
)
from federation.model.workload import TargetCluster
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.commit import lockable_clusters
from lab.services import WEB, fleet_of, make_report


def only(cluster: str) -> Binding:
    return replace(WEB, placement=Placement(affinity=ClusterAffinity(cluster_names=(cluster,))))


async def test_what_is_locked_is_where_it_may_go_and_what_it_leaves() -> None:
    fleet = fleet_of(a=make_report(), b=make_report(), c=make_report())
    for name in "abc":
        fleet.put_presence(name, replace(fleet.view(name).presence, silent_after=1e10))

    def locked(*bindings: Binding) -> frozenset[str]:
        attempts = [Attempt(binding=binding) for binding in bindings]
        for attempt in attempts:
            attempt.candidate = attempt.binding
        return lockable_clusters(attempts, fleet.snapshot)

    assert locked(only("a")) == {"a"}
    moved = replace(only("a"), clusters=(TargetCluster(name="b", replicas=1),))
    assert locked(moved) == locked(only("a"), only("b")) == {"a", "b"}
    urgent = replace(only("a"), preemption_policy=PreemptionPolicy.PREEMPT_LOWER_PRIORITY)
    assert locked(WEB) == locked(urgent) == {"a", "b", "c"}
