"""What is wrong with a binding is told by field and rule, and sums beyond an int32 just work."""

from __future__ import annotations

from typing import Any

import grpc

from federation.codec.strict import message_from_document
from federation.v1.agents_pb2 import NodePool, NodePools
from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, OUTCOME_UNSCHEDULABLE, ScheduleRequest
from lab.control_planes import RunningControlPlane, refused, report
from tests.bad_bindings import BAD, bad_binding


async def asked(running: RunningControlPlane, spec: dict[str, Any]) -> Any:
    binding = message_from_document(bad_binding(spec), ResourceBinding)
    request = ScheduleRequest(binding=binding)
    return await running.admin.call(running.admin.scheduling.Schedule, request)


async def test_every_wrong_binding_is_refused_by_its_field(running: RunningControlPlane) -> None:
    for what, (spec, field, rule) in BAD.items():
        refusal = await refused(asked(running, spec))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT, what
        assert refusal.violations == {field: rule}, what


async def test_several_are_told_at_once(running: RunningControlPlane) -> None:
    names = ["more replicas than Kubernetes counts", "an affinity group twice"]
    spec = BAD[names[0]][0] | BAD[names[1]][0]
    refusal = await refused(asked(running, spec))
    assert set(refusal.violations) == {BAD[name][1] for name in names}


MOST = 2**31 - 1


async def test_replicas_of_all_clusters_may_exceed_an_int32(running: RunningControlPlane) -> None:
    free = {"cpu": 1 << 50, "memory": 1 << 60, "pods": 1 << 40}
    endless = report(
        nodes=1,
        allocatable=free,
        pools=NodePools(
            pools=[NodePool()],
            resources=[*free],
            cell_pools=[0],
            counts=[1],
            minimums=[*free.values()],
            spreads=[0, 0, 0],
            surpluses=[0, 0, 0],
        ),
    )
    async with running.connected("m1", report=endless), running.connected("m2", report=endless):
        decision = (await asked(running, {"replicas": MOST})).decision
        assert decision.outcome == OUTCOME_SCHEDULED
        assert [each.replicas for each in decision.clusters] == [MOST, MOST]


async def test_replicas_of_all_components_may_exceed_an_int32(running: RunningControlPlane) -> None:
    needs = {"resourceRequest": {"cpu": 1}}
    components = [
        {"name": name, "replicas": MOST, "replicaRequirements": needs} for name in ("a", "b", "c")
    ]
    async with running.connected("m1", report=report()):
        decision = (await asked(running, {"replicas": 0, "components": components})).decision
        assert decision.outcome == OUTCOME_UNSCHEDULABLE
        assert decision.remainder == 3 * MOST
