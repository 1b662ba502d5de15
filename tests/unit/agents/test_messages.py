from __future__ import annotations

from dataclasses import replace

import pytest

from federation.agents.messages import (
    MAX_NODE_SHARES,
    hello_from_message,
    node_plan_from_message,
    place_request_to_message,
)
from federation.model.errors import InvalidRequest
from federation.model.node_plans import NodeShare, PlaceOrder, ShareOrder
from federation.model.workload import ReplicaRequirements
from federation.services.agent_values import Placer
from federation.v1.agents_pb2 import Hello, PlaceReply
from federation.v1.agents_pb2 import NodeShare as NodeShareMessage
from federation.v1.resource_pb2 import ApiEnablement, ApiResource


def fields_of(error: InvalidRequest) -> set[str]:
    return {violation.field for violation in error.violations}


def order(**replicas: int) -> PlaceOrder:
    return PlaceOrder(
        decision_id="d1",
        binding_key="shop/cart",
        shares=tuple(
            ShareOrder(
                component=component,
                replicas=count,
                requirements=ReplicaRequirements(request={"cpu": 500}),
            )
            for component, count in replicas.items()
        ),
    )


def test_a_hello_is_read_whole() -> None:
    hello = hello_from_message(
        Hello(
            epoch=7,
            agent_version="0.1.0",
            kubernetes_version="v1.33.1",
            placer="extender",
            api_enablements=[
                ApiEnablement(group_version="apps/v1", resources=[ApiResource(kind="Deployment")])
            ],
            sees_no_nodes=True,
        )
    )
    assert (hello.epoch, hello.placer, hello.sees_no_nodes) == (7, Placer.EXTENDER, True)
    assert hello.api_enablements == frozenset({("apps/v1", "Deployment")})


def test_an_order_is_written_with_its_quantities() -> None:
    request = place_request_to_message("r1", order(web=3)).place_request
    assert (request.request_id, request.decision_id, request.binding) == ("r1", "d1", "shop/cart")
    (share,) = request.shares
    assert (share.component, share.replicas) == ("web", 3)
    assert share.replica_requirements.resource_request == {"cpu": "500m"}


def test_an_order_by_plan_says_so_and_its_reply_may_say_that_nodes_are_claimed() -> None:
    planned = replace(order(web=1), planned=True)
    assert place_request_to_message("r1", planned).place_request.planned
    assert not place_request_to_message("r1", order(web=1)).place_request.planned
    node = NodeShareMessage(node="n1", component="web", replicas=1)
    for claimed in (True, False):
        reply = PlaceReply(nodes=[node], claimed=claimed)
        assert node_plan_from_message("member1", planned, reply).claimed is claimed


@pytest.mark.parametrize("planned", [True, False])
def test_nodes_are_claimed_for_all_that_was_to_be_planned_or_for_nothing(*, planned: bool) -> None:
    node = NodeShareMessage(node="n1", component="web", replicas=1)
    reply = PlaceReply(nodes=[node], unplaced=int(planned), claimed=True)
    asked = replace(order(web=1 + planned), planned=planned)
    with pytest.raises(InvalidRequest) as caught:
        node_plan_from_message("member1", asked, reply)
    assert fields_of(caught.value) == {"placeReply.claimed"}


def test_a_reply_becomes_a_plan() -> None:
    reply = PlaceReply(
        nodes=[
            NodeShareMessage(node="n1", component="web", replicas=2, score=71),
            NodeShareMessage(node="n1", component="db", replicas=1, score=100),
        ],
        unplaced=1,
        message="no more nodes" * 1000,
        strategy="MostAllocated",
    )
    plan = node_plan_from_message("member1", order(web=3, db=1), reply)
    assert plan.nodes == (
        NodeShare(node="n1", component="web", replicas=2, score=71),
        NodeShare(node="n1", component="db", replicas=1, score=100),
    )
    assert (plan.cluster, plan.unplaced, plan.strategy) == ("member1", 1, "MostAllocated")
    assert len(plan.message) == len("“”") + 1000


@pytest.mark.parametrize(
    ("reply", "field"),
    [
        (PlaceReply(unplaced=2), "placeReply.unplaced"),
        (PlaceReply(unplaced=4), "placeReply.unplaced"),
        (
            PlaceReply(unplaced=-1, nodes=[NodeShareMessage(node="n", replicas=4)]),
            "placeReply.unplaced",
        ),
        (
            PlaceReply(nodes=[NodeShareMessage(node="n", component="other", replicas=3)]),
            "placeReply.nodes",
        ),
        (
            PlaceReply(unplaced=3, nodes=[NodeShareMessage(node="n", replicas=0)]),
            "placeReply.nodes[0].replicas",
        ),
        (
            PlaceReply(nodes=[NodeShareMessage(node="n", replicas=3, score=101)]),
            "placeReply.nodes[0].score",
        ),
        (
            PlaceReply(
                nodes=[NodeShareMessage(node="n", replicas=3, total=201.0, total_scale=200.0)]
            ),
            "placeReply.nodes[0].total",
        ),
        (
            PlaceReply(nodes=[NodeShareMessage(node="n", replicas=3, total_scale=float("nan"))]),
            "placeReply.nodes[0].totalScale",
        ),
        (PlaceReply(nodes=[NodeShareMessage(replicas=3)]), "placeReply.nodes[0].node"),
        (
            PlaceReply(nodes=[NodeShareMessage(node="n" * 254, replicas=3)]),
            "placeReply.nodes[0].node",
        ),
    ],
)
def test_a_reply_that_does_not_answer_the_order_is_refused(reply: PlaceReply, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        node_plan_from_message("member1", order(**{"": 3}), reply)
    assert field in fields_of(caught.value)


def test_a_reply_with_more_nodes_than_there_are_anywhere_is_not_read() -> None:
    reply = PlaceReply(request_id="r1")
    for number in range(MAX_NODE_SHARES + 1):
        reply.nodes.add(node=f"n{number}", replicas=1)
    with pytest.raises(InvalidRequest, match=f"at most {MAX_NODE_SHARES} are looked at") as caught:
        node_plan_from_message("member1", order(web=1), reply)
    assert fields_of(caught.value) == {"placeReply.nodes"}
