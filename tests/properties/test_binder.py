"""Whatever comes: no node is given more than it has, and no gang gets less than its minimum."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.binder.binder import Binder
from estimator.estimation.capacity import NodeSet
from estimator.kube.lease import Election, Lease
from estimator.nodes import Node
from estimator.placement.incoming import IncomingPod, PodEvent
from estimator.placement.place import DEFAULT_STRATEGY
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import Unavailable
from tests.pods import incoming, member

SLOTS = 4


@dataclass(slots=True)
class MemoryWrites:
    """Binds in memory; of some pods the first attempt fails."""

    failing: set[str]
    bound: dict[str, str] = field(default_factory=dict)

    async def bind(self, *, name: str, node: str, **_: str) -> None:
        if name in self.failing:
            self.failing.discard(name)
            raise Unavailable("the API server is away")
        assert name not in self.bound
        self.bound[name] = node

    async def tell(self, event: PodEvent) -> None:
        """Nobody listens."""

    async def read_lease(self) -> Lease | None:
        return None

    async def write_lease(self, lease: Lease) -> None:
        """There is no other candidate."""


@dataclass(slots=True)
class Clock:
    now: float = 0.0


@dataclass(frozen=True, slots=True)
class Gang:
    sizes: list[int]
    minimum: int


# Few sizes, so that groups often fit but for their last pod.
sizes = st.lists(st.sampled_from([500, 1000, 2000]), min_size=2, max_size=4)
gangs = st.builds(Gang, sizes, st.integers(1, 5))


def pods_of(singles: list[int], groups: list[Gang]) -> list[IncomingPod]:
    pods = [incoming(f"s{at}", {"cpu": cpu}) for at, cpu in enumerate(singles)]
    for number, gang in enumerate(groups):
        pods += [
            member(f"g{number}-{at}", f"g{number}", gang.minimum, request={"cpu": cpu})
            for at, cpu in enumerate(gang.sizes)
        ]
    return pods


async def bound_after(
    capacities: list[int], pods: list[IncomingPod], failing: set[str]
) -> dict[str, str]:
    """Where pods are after a minute, in which the watch tells of each binding."""
    cluster = WatchedCluster(NodeSet.SCHEDULABLE)
    cluster.cache.replace_nodes(
        Node(name=f"n{at}", allocatable={"cpu": cpu, "pods": SLOTS})
        for at, cpu in enumerate(capacities)
    )
    clock, writes, election = Clock(), MemoryWrites(failing), Election("one")
    binder = Binder(
        cluster,
        writes,
        DEFAULT_STRATEGY,
        election,
        clock=lambda: clock.now,
        monotonic=lambda: clock.now,
    )
    binder.replace_pods(pods)
    for _ in range(60):
        election.written(clock.now)
        progress = True
        while progress:
            progress = binder._step(clock.now)
            await asyncio.gather(*binder._binding)
        for pod in pods:
            if pod.name in writes.bound and pod.uid in binder._known:
                binder.put_pod(replace(pod, node=writes.bound[pod.name]))
        clock.now += 1.0
    return writes.bound


@given(
    capacities=st.lists(st.sampled_from([0, 1000, 2500, 6000]), min_size=1, max_size=3),
    singles=st.lists(st.integers(0, 4000), max_size=6),
    groups=st.lists(gangs, max_size=3),
    failing=st.sets(st.sampled_from([f"s{at}" for at in range(6)]), max_size=3),
)
@settings(max_examples=50, deadline=None)
def test_nothing_is_given_twice_and_no_gang_halfway(
    capacities: list[int], singles: list[int], groups: list[Gang], failing: set[str]
) -> None:
    pods = pods_of(singles, groups)
    bound = asyncio.run(bound_after(capacities, pods, failing))
    by_name = {pod.name: pod for pod in pods}
    used, slots = Counter[str](), Counter(bound.values())
    for name, node in bound.items():
        used[node] += by_name[name].request.amounts["cpu"]
    free = {f"n{at}": cpu - used[f"n{at}"] for at, cpu in enumerate(capacities)}
    assert all(cpu >= 0 for cpu in free.values())
    assert all(count <= SLOTS for count in slots.values())

    for number, gang in enumerate(groups):
        together = sum(name.startswith(f"g{number}-") for name in bound)
        assert together == 0 or together >= gang.minimum
    room = [cpu for node, cpu in free.items() if slots[node] < SLOTS]
    for at, cpu in enumerate(singles):
        if f"s{at}" not in bound:
            assert all(cpu > left for left in room)
