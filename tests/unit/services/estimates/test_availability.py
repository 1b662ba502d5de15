from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from federation.model.cluster import ReportedPool, ReportedPools
from federation.model.estimate import CANNOT_SEE_NODES, Bound, EstimateOptions, Source
from federation.model.reservations import Share
from federation.model.workload import Component, NodeClaim, ReplicaRequirements
from federation.services.estimates import availability as module
from federation.services.estimates.availability import Availability
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, ClusterShares
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.services.threads import ESTIMATING
from federation.services.values import ExactQuestion
from lab.services import GIB, join, join_and_report, make_report
from tests.unit.services.conftest import StillClock

# The documentation's example: nodes by grade of the default model.
GRADES = {"member1": {2: 1, 3: 6}, "member2": {2: 4, 3: 4}, "member3": {6: 1}}
SMALL = ReplicaRequirements(request={"cpu": 3000, "memory": 20 * GIB})
SUMMARY = EstimateOptions(highest=Source.SUMMARY)
LARGE = ReplicaRequirements(request={"cpu": 3000, "memory": 60 * GIB})


class NoAgents:
    """Nobody is connected."""

    def sees_nodes(self, _cluster: str) -> bool:
        return False

    async def estimate(
        self, cluster: str, _question: ExactQuestion, _timeout_seconds: float
    ) -> tuple[int, ...]:
        raise AssertionError(f"{cluster} is not connected")


@pytest.fixture
async def availability(
    registration: Registration, reporting: Reporting, fleet: FleetOwner, clock: StillClock
) -> Availability:
    reports = {
        name: make_report(place, grades=grades)
        for place, (name, grades) in enumerate(GRADES.items(), start=1)
    }
    await join_and_report(registration, reporting, reports)
    await join(registration, "silent")
    return Availability(fleet, NoAgents(), clock)


async def test_every_shape_is_answered_for_every_cluster(availability: Availability) -> None:
    answer = await availability.estimate([SMALL, LARGE], None, EstimateOptions())
    assert answer.names == ("member1", "member2", "member3", "silent")
    assert [each.replicas_c.tolist() for each in answer.estimates] == [[7, 8, 10, 0], [6, 4, 4, 0]]
    assert answer.estimates[0].source_c.tolist() == [Source.MODELS] * 3 + [Source.NONE]
    assert answer.sequence_c.tolist() == [1, 2, 3, 0]


async def test_ages_are_told_by_our_clock_and_never_negative(
    availability: Availability, fleet: FleetOwner, clock: StillClock
) -> None:
    as_of = fleet.view("member1").state.as_of
    assert as_of is not None
    clock.time = as_of + 12.5
    answer = await availability.estimate([SMALL], ["member1", "silent"], EstimateOptions())
    assert answer.age_seconds_c.tolist() == [12.5, 0.0]
    clock.time = as_of - 5
    answer = await availability.estimate([SMALL], None, EstimateOptions())
    assert np.all(answer.age_seconds_c >= 0)


async def test_clusters_without_an_agent_lose_one_level(availability: Availability) -> None:
    exact = EstimateOptions(highest=Source.EXACT)
    (estimates,) = (await availability.estimate([SMALL], None, exact)).estimates
    assert estimates.replicas_c.tolist() == [7, 8, 10, 0]
    nobody = "no agent that sees its nodes is connected"
    assert estimates.reasons[0] == nobody
    assert estimates.reasons[3].startswith(f"{nobody}; the cluster has not")


async def test_sets_are_counted_by_their_sum(availability: Availability) -> None:
    components = [
        Component(name="manager", replicas=1, requirements=SMALL),
        Component(name="worker", replicas=2, requirements=SMALL),
    ]
    single = (await availability.estimate([SMALL], None, SUMMARY)).estimates[0]
    answer = await availability.estimate_sets(components, ["member1", "silent"], SUMMARY)
    (estimates,) = answer.estimates
    assert estimates.replicas_c[0] == single.replicas_c[0] // 3 >= 1
    assert estimates.source_c.tolist() == [Source.SUMMARY, Source.NONE]


async def test_pools_answer_before_models_and_prove_both_ends(
    registration: Registration, reporting: Reporting, fleet: FleetOwner, clock: StillClock
) -> None:
    pools = ReportedPools(
        label_keys=("disk",),
        pools=(ReportedPool(labels={"disk": "ssd"}),),
        resources=("cpu", "memory", "pods"),
        cell_pools=(0,),
        counts=(7,),
        minimums=(4000, 64 * GIB, 100),
        spreads=(8000, 0, 0),
        surpluses=(8000, 0, 0),
    )
    report = replace(make_report(1, grades={2: 1, 3: 6}), pools=pools)
    await join_and_report(
        registration, reporting, {"pooled": report, "plain": make_report(1, grades={6: 1})}
    )
    availability = Availability(fleet, NoAgents(), clock)
    (found,) = (await availability.estimate([SMALL], None, EstimateOptions())).estimates
    assert found.source_c.tolist() == [Source.MODELS, Source.POOLS]
    assert found.bound_c.tolist() == [Bound.NONE, Bound.LOWER]
    # Seven nodes with at least 4 cores, one of them with 12: at least one replica each.
    assert 7 <= found.replicas_c[1] <= 9
    assert found.upper_c is not None
    assert found.upper_c.tolist() == [-1, 12]
    by_zone = replace(SMALL, node_claim=NodeClaim(node_selector={"zone": "a"}))
    (found,) = (await availability.estimate([by_zone], ["pooled"], EstimateOptions())).estimates
    assert found.source_c.tolist() == [Source.NONE]
    assert found.reasons == {
        0: f"the cluster's pools do not tell nodes apart by zone; {CANNOT_SEE_NODES}"
    }
    components = [Component(name="a", replicas=2, requirements=SMALL)]
    (found,) = (await availability.estimate_sets(components, None, EstimateOptions())).estimates
    assert found.source_c.tolist() == [Source.SUMMARY, Source.POOLS]
    assert found.replicas_c[1] == 3
    chosen = [Component(name="a", replicas=2, requirements=by_zone)]
    (found,) = (await availability.estimate_sets(chosen, None, EstimateOptions())).estimates
    assert found.source_c.tolist() == [Source.NONE, Source.NONE]
    named = ["pooled", "plain", "pooled"]
    (found,) = (await availability.estimate_sets(components, named, EstimateOptions())).estimates
    assert found.source_c.tolist() == [Source.POOLS, Source.SUMMARY, Source.POOLS]
    assert found.replicas_c.tolist()[::2] == [3, 3]


@pytest.mark.parametrize("source", [Source.MODELS, Source.POOLS])
async def test_only_what_takes_long_beside_promises_goes_to_a_thread(
    availability: Availability, fleet: FleetOwner, monkeypatch: pytest.MonkeyPatch, source: Source
) -> None:
    cells = 20
    pools = ReportedPools(
        label_keys=(),
        pools=(ReportedPool(),),
        resources=("cpu", "memory", "pods"),
        cell_pools=(0,) * cells,
        counts=(1,) * cells,
        minimums=(4000,) * cells + (20 * GIB,) * cells + (9,) * cells,
        spreads=(0,) * cells * 3,
        surpluses=(0,) * cells * 3,
    )
    fleet.put_report("member1", replace(make_report(2), pools=pools), 0.0)
    for name in ("member1", "member2"):
        shares = ClusterShares(fleet.version(name).version + 1, (Share(SMALL, 2),))
        change = BindingChanged(namespace="", name=f"in-{name}", clusters={name: shares})
        fleet.apply(change)
    in_threads: list[object] = []

    async def noted(work: Callable[..., object], *arguments: object) -> object:
        in_threads.append(work)
        return work(*arguments)

    monkeypatch.setattr(ESTIMATING, "run", noted)
    options = EstimateOptions(highest=source)
    here = await availability.estimate([SMALL], None, options)
    assert not in_threads
    # Of member1 its cells count where they answer, of member2 what was promised.
    blind = module.CELLS_FOR_A_BLIND_CLUSTER
    expected = {Source.MODELS: 2 * blind, Source.POOLS: cells + blind}[source]
    monkeypatch.setattr(module, "PROMISED_CELLS_PER_THREAD", expected + 1)
    await availability.estimate([SMALL], None, options)
    assert not in_threads
    there = await availability.estimate([SMALL, LARGE], None, options)
    assert len(in_threads) == 1
    assert there.estimates[0].replicas_c.tolist() == here.estimates[0].replicas_c.tolist()
