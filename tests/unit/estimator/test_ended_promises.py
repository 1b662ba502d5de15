"""Nodes that are kept for a binding, once nothing is promised to it any more."""

from __future__ import annotations

import pytest

from estimator.cluster.claims import Claim
from federation.model.echoes import Interest, InterestUpdate, SoughtShape
from federation.model.node_plans import PlaceOrder, ShareOrder
from federation.model.reservations import PromiseCertificate, Share
from federation.model.resources import CPU
from federation.model.shapes import request_shape
from tests.unit.estimator.placing.test_plans import NOW, REQUEST, World, requirements


def sought(promised: int | None, decision: str = "d1", planned: int = 0) -> Interest:
    share = Share(
        requirements=requirements(), replicas=planned, certificate=PromiseCertificate.PLANNED
    )
    shape = SoughtShape(
        component="",
        shape=request_shape(REQUEST),
        decisions=(decision,),
        planned=share if planned else None,
        promised=promised,
    )
    return Interest(binding="shop/web", owner=None, shapes=(shape,))


def world_with_claims(*, follows_claims: bool, decision: str = "d1") -> World:
    """A cluster in which a binding has one node of four cores for itself."""
    world = World("n1")
    world.member.follows_claims = follows_claims
    share = ShareOrder(replicas=4, requirements=requirements())
    order = PlaceOrder(decision_id=decision, binding_key="shop/web", shares=(share,))
    assert not world.member.place(order, NOW).unplaced
    return world


def claims_of(world: World) -> list[Claim]:
    return [*world.member.claims.all()]


@pytest.mark.parametrize("follows_claims", [False, True])
@pytest.mark.parametrize(
    "update",
    [
        InterestUpdate(version=2, whole=False, interests=(sought(0),)),
        InterestUpdate(version=2, whole=False, removed=("shop/web",)),
    ],
)
def test_others_get_its_nodes_at_once(update: InterestUpdate, follows_claims: bool) -> None:
    world = world_with_claims(follows_claims=follows_claims)
    world.update(update)
    assert claims_of(world) == []
    assert not world.order(4, planned=False, binding="shop/urgent").unplaced


@pytest.mark.parametrize(
    "interest",
    [
        sought(4),
        # An older control plane does not say.
        sought(None),
        # Written before the control plane had heard of the decision that the claims are of.
        sought(0, decision="d0"),
    ],
)
def test_it_keeps_them_while_it_may_be_promised_something(interest: Interest) -> None:
    world = world_with_claims(follows_claims=False)
    world.update(InterestUpdate(version=2, whole=False, interests=(interest,)))
    assert sum(claim.replicas for claim in claims_of(world)) == 4
    assert world.order(1, planned=False, binding="shop/urgent").unplaced == 1


def test_what_was_promised_by_plan_leaves_no_claims_behind() -> None:
    world = World("n1")
    share = ShareOrder(replicas=4, requirements=requirements())
    order = PlaceOrder(decision_id="d1", binding_key="shop/web", shares=(share,), planned=True)
    assert world.member.place(order, NOW).claimed
    world.update(InterestUpdate(version=1, whole=False, interests=(sought(4, planned=4),)))
    assert sum(claim.taken[CPU] for claim in claims_of(world)) == 4000
    world.update(InterestUpdate(version=2, whole=False, interests=(sought(0),)))
    assert claims_of(world) == []


def test_what_is_no_longer_promised_by_plan_is_given_up_once_it_has_ended() -> None:
    world = World("n1")
    share = ShareOrder(replicas=4, requirements=requirements())
    order = PlaceOrder(decision_id="d1", binding_key="shop/web", shares=(share,), planned=True)
    assert world.member.place(order, NOW).claimed
    for version, interest in enumerate((sought(4, planned=4), sought(4), sought(0)), start=1):
        world.update(InterestUpdate(version=version, whole=False, interests=(interest,)))
        assert bool(claims_of(world)) is (interest.shapes[0].promised != 0)
