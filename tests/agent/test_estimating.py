"""Questions of the control plane about room, and the agent's exact answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from estimator.agent.answers import MAX_RUNNING
from federation.v1.agents_pb2 import AssumedWorkload, EstimateRequest
from federation.v1.resource_pb2 import Component, NodeClaim, ReplicaRequirements
from lab.kubeapi.documents import node, pod, quota
from lab.kubeapi.faults import Answer
from lab.patience import until
from tests.agent.agents import Member, joined, share

ONE_CPU = ReplicaRequirements(resource_request={"cpu": "1"})
HALF_IN_SHOP = ReplicaRequirements(resource_request={"cpu": "500m"}, namespace="shop")


def workload(**replicas: int) -> list[Component]:
    """Components whose replicas have one core each."""
    return [
        Component(name=name, replicas=count, replica_requirements=ONE_CPU)
        for name, count in replicas.items()
    ]


def assumed(*counts: int) -> list[AssumedWorkload]:
    return [AssumedWorkload(components=workload(promised=count)) for count in counts]


async def answer(member: Member, **question: Any) -> list[int]:
    reply = await member.estimate(**question)
    assert not reply.message
    return list(reply.replicas)


async def test_shapes_and_sets_are_counted_beside_what_is_promised(tmp_path: Path) -> None:
    async with joined(tmp_path, node("a")) as member:
        assert await answer(member, shapes=[ONE_CPU, ReplicaRequirements()]) == [4, 10]
        assert await answer(member, shapes=[ONE_CPU] * 100, assumed=assumed(1)) == [3] * 100
        pair = workload(manager=1, worker=1)
        assert await answer(member, components=pair) == [2]
        # Those are packed first, by the same rule; what did not fit of one still holds its part.
        for counts, sets in (([1], 1), ([2], 1), ([3], 0), ([1, 1, 1], 0), ([9], 0)):
            assert await answer(member, components=pair, assumed=assumed(*counts)) == [sets]


async def test_pools_are_told_apart_by_what_is_asked_for(tmp_path: Path) -> None:
    async with joined(tmp_path, node("a")) as member:
        claim = NodeClaim(node_selector={"disk": "ssd"})
        assert await answer(member, shapes=[ReplicaRequirements(node_claim=claim)]) == [0]
        await member.report(lambda report: report.pools.label_keys[0] == "disk")


async def test_a_wrong_question_is_answered_by_what_is_wrong(tmp_path: Path) -> None:
    async with joined(tmp_path) as member:
        reply = await member.estimate(shapes=[share(1, "much").replica_requirements])
        assert reply.message.startswith("shapes[0].resourceRequest[cpu]: ")
        assert not reply.replicas


async def test_of_too_many_questions_some_are_refused_and_all_are_answered(tmp_path: Path) -> None:
    question = {"shapes": [ONE_CPU] * 2000, "assumed": assumed(1)}
    async with joined(tmp_path, node("a")) as member:

        async def refusals() -> int:
            numbers = {str(number) for number in range(20 * MAX_RUNNING)}
            for number in sorted(numbers):
                request = EstimateRequest(request_id=number, **question)
                await member.line.send(estimate_request=request)
            refused = 0
            while numbers:
                reply = (await member.line.receive_next("estimate_reply")).estimate_reply
                numbers.remove(reply.request_id)
                if reply.message:
                    assert reply.message == f"{MAX_RUNNING} questions are being answered already"
                    refused += 1
                else:
                    assert list(reply.replicas) == [3] * 2000
            return refused

        assert await until(refusals, bool)


async def test_quotas_are_followed(tmp_path: Path) -> None:
    async with joined(tmp_path, node("a"), quota("2")) as member:

        async def fitting() -> list[int]:
            return await answer(member, shapes=[HALF_IN_SHOP])

        assert await fitting() == [4]
        member.put(quota("1"))
        await until(fitting, lambda found: found == [2])
        member.remove(quota("1"))
        await until(fitting, lambda found: found == [8])


async def test_without_leave_to_read_quotas_the_rest_is_current(tmp_path: Path) -> None:
    forbidden = Answer(status=403, body=b"{}")
    async with joined(tmp_path, node("a"), quota("1")) as member:
        server = member.server
        assert await answer(member, shapes=[HALF_IN_SHOP]) == [2]
        server.faults.add(forbidden, resource="resourcequotas")
        server.end_watches()
        await until(lambda: answer(member, shapes=[HALF_IN_SHOP]), lambda found: found == [8])
        await member.report(lambda report: not report.sight.picture_age_seconds)


async def test_karmadas_node_set_sees_pods_that_failed(tmp_path: Path) -> None:
    failed = pod("p")
    failed["status"]["phase"] = "Failed"
    for flag, allocating in (("true", {"cpu": 500, "pods": 1}), ("false", {})):
        state = tmp_path / flag
        state.mkdir()
        async with joined(state, failed, count_unschedulable_nodes=flag) as member:
            assert dict((await member.report()).allocating) == allocating
