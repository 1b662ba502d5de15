"""What is kept back of careful promises stays so for previews, rivals and batches that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from estimator.estimation.pooling import Pooling
from estimator.kube.dump import read_dump
from estimator.snapshot import NodeTable, Snapshot, columns_of
from federation.model.access import EVERYTHING
from federation.model.cluster import NodeSummary
from federation.model.errors import PreconditionFailed
from federation.model.placement import Binding, ClusterAffinity, Placement, ReplicaScheduling
from federation.model.reported_pools import reported_pools
from federation.model.workload import Component, ReplicaRequirements
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.services.values import Previewed
from federation.store.postgres import PostgresStore
from lab.fleets import GIB
from lab.kubeapi.documents import node
from lab.services import (
    DYNAMIC,
    WEB,
    Agents,
    Deciders,
    apply,
    decided,
    join_and_report,
    make_deciders,
    make_report,
)
from tests.unit.services.conftest import ControlPlane, MeddledStore, StillClock, held

CLUSTER = "big"
NODES, CORES = 10, 16
DUPLICATED = ReplicaScheduling()


@pytest.fixture
async def deciders(
    store: PostgresStore,
    fleet: object,
    registration: Registration,
    reporting: Reporting,
    agents: Agents,
    clock: StillClock,
) -> Deciders:
    """One cluster of 160 empty cores, as an agent reports its nodes."""
    items = [node(f"n{number}", cpu=str(CORES)) for number in range(NODES)]
    for item in items:
        item["status"]["allocatable"] |= {"memory": "640Gi", "pods": "500"}
    dump = msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": items})
    table = NodeTable.of(read_dump(dump).nodes)
    nothing = {"cpu": 0, "memory": 0, "pods": 0}
    snapshot = Snapshot(table=table, requested=columns_of([nothing] * NODES))
    pools = Pooling(256).pools(snapshot, np.ones(NODES, dtype=np.bool_))
    report = replace(
        make_report(cpu_millis=NODES * CORES * 1000),
        nodes=NodeSummary(total=NODES, ready=NODES, graded=0),
        pools=reported_pools(pools),
    )
    await join_and_report(registration, reporting, {CLUSTER: report})
    return make_deciders(store, fleet, agents, clock)  # type: ignore[arg-type]  # the fixture


def of(name: str, replicas: int, cores: int, scheduling: ReplicaScheduling = DYNAMIC) -> Binding:
    return replace(
        WEB,
        name=name,
        uid="",
        replicas=replicas,
        requirements=ReplicaRequirements(request={"cpu": cores * 1000, "memory": GIB}),
        placement=Placement(
            affinity=ClusterAffinity(cluster_names=(CLUSTER,)), replica_scheduling=scheduling
        ),
    )


SMALL, LARGE = of("small", 80, 1), of("large", 40, 2)
SETS = replace(
    of("sets", 0, 1),
    requirements=ReplicaRequirements(request={}),
    components=(
        Component(name="one", replicas=2, requirements=SMALL.requirements),
        Component(name="two", replicas=37, requirements=LARGE.requirements),
    ),
)


async def previewed(plane: ControlPlane, *bindings: Binding) -> Sequence[Previewed]:
    return [
        await plane.deciders.previews.preview(each, adopt=False, wait=False) for each in bindings
    ]


async def assert_stale(plane: ControlPlane, preview: Previewed) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        await plane.deciders.previews.commit(preview.token, None, EVERYTHING)
    assert caught.value.reason == "PREVIEW_STALE"


@pytest.mark.parametrize("second", [LARGE, SETS], ids=["replicas", "a set"])
async def test_of_two_previews_the_second_is_stale_where_it_would_take_what_is_kept_back(
    one: ControlPlane, store: PostgresStore, second: Binding
) -> None:
    first, later = await previewed(one, SMALL, second)
    await one.deciders.previews.commit(first.token, None, EVERYTHING)
    await assert_stale(one, later)
    # So says a new decision, and the next preview.
    assert decided(await apply(one.deciders.scheduling, second)) == {}
    (again,) = await previewed(one, second)
    assert again.record.decision.clusters == ()
    assert (await held(store, SMALL), await held(store, second)) == ({CLUSTER: 80}, {})


async def test_a_preview_is_committed_where_a_new_decision_would_say_the_same(
    one: ControlPlane, store: PostgresStore
) -> None:
    fitting = of("fitting", 35, 2)
    first, later = await previewed(one, SMALL, fitting)
    await one.deciders.previews.commit(first.token, None, EVERYTHING)
    await one.deciders.previews.commit(later.token, None, EVERYTHING)
    assert await held(store, fitting) == {CLUSTER: 35}


async def test_what_is_duplicated_takes_all_that_fits_as_ever(
    one: ControlPlane, store: PostgresStore
) -> None:
    copies = of("copies", 40, 2, DUPLICATED)
    first, later = await previewed(one, SMALL, copies)
    await one.deciders.previews.commit(first.token, None, EVERYTHING)
    await one.deciders.previews.commit(later.token, None, EVERYTHING)
    assert await held(store, copies) == {CLUSTER: 40}


@pytest.mark.parametrize("second", [LARGE, SETS], ids=["replicas", "a set"])
async def test_what_another_plane_promised_meanwhile_keeps_its_margin(
    one: ControlPlane,
    other: ControlPlane,
    meddled: MeddledStore,
    store: PostgresStore,
    second: Binding,
) -> None:
    meddled.meddle = lambda: apply(one.deciders.scheduling, SMALL)
    assert decided(await apply(other.deciders.scheduling, second)) == {}
    assert (await held(store, SMALL), await held(store, second)) == ({CLUSTER: 80}, {})


async def test_two_planes_in_the_same_moment_keep_the_margin(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    for number in range(5):
        bindings = [replace(SMALL, name=f"s{number}"), replace(LARGE, name=f"l{number}")]
        await asyncio.gather(
            *(
                apply(plane.deciders.scheduling, binding)
                for plane, binding in zip((one, other), bindings, strict=True)
            )
        )
        placed = [await held(store, each) for each in bindings]
        # Whichever came first, the other one finds too little beside what is kept back.
        assert placed in ([{CLUSTER: 80}, {}], [{}, {CLUSTER: 40}])
        for plane, each in ((one, bindings[0]), (other, bindings[1])):
            await plane.follow()
            await plane.deciders.releases.delete(each.namespace, each.name)
        await one.follow()
        await other.follow()


async def test_what_does_not_grow_is_kept_whatever_came_beside_it(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    await apply(one.deciders.scheduling, replace(SMALL, replicas=120))
    await apply(one.deciders.scheduling, of("beside", 15, 2))
    await other.follow()
    # Nothing more is available; what is there stays, and may shrink.
    for replicas in (120, 119):
        await apply(other.deciders.scheduling, replace(SMALL, replicas=replicas))
        assert await held(store, SMALL) == {CLUSTER: replicas}
        await one.follow()
