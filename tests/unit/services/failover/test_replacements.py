"""How far a replacement is that nobody can see; all else of it is said by tests/api."""

from __future__ import annotations

from federation.model.placement import Binding, EvictionTask
from federation.model.workload import TargetCluster
from federation.services.failover.evicting import progress_of
from lab.services import fleet_of, make_report


def test_a_replacement_in_a_cluster_that_is_gone_or_silent_does_not_run() -> None:
    """A deletion of the cluster changes the binding too, and that may not be read here yet."""
    clusters = (TargetCluster(name="b", replicas=1),)
    web = Binding(namespace="shop", name="web", replicas=1, clusters=clusters)
    task = EvictionTask(from_cluster="a", replicas=1)
    for fleet in (fleet_of(), fleet_of(b=make_report())):
        assert progress_of(fleet, web, task, {"a"}).outstanding == 1
