"""What agents are to look for, on the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.codec.interests import PART_BYTES, interest_messages, interests_from_message
from federation.model.cluster import TaintEffect
from federation.model.echoes import Interest, InterestUpdate, Owner, SoughtShape
from federation.model.reservations import PromiseCertificate, Share
from federation.model.shapes import request_shape
from federation.model.workload import NodeClaim, ReplicaRequirements, Toleration
from federation.v1 import agents_pb2
from tests.unit.codec.documents import violations

REQUEST = {"cpu": 250, "memory": 1 << 30}
CLAIM = NodeClaim(
    node_selector={"disk": "ssd"},
    tolerations=(Toleration(key="k", value="v", effect=TaintEffect.NO_SCHEDULE),),
)
PLANNED = Share(
    component="worker",
    requirements=ReplicaRequirements(request=REQUEST, node_claim=CLAIM, namespace="shop"),
    replicas=3,
    certificate=PromiseCertificate.PLANNED,
)
WEB = Interest(
    binding="shop/web",
    uid="uid-1",
    owner=Owner("apps/v1", "Deployment", "shop", "web"),
    shapes=(
        SoughtShape(
            component="worker",
            shape=request_shape(REQUEST),
            decisions=("d1", "d2"),
            planned=PLANNED,
            echoed=2,
        ),
        SoughtShape(component="", shape=(), decisions=()),
    ),
)
DB = Interest(binding="db", owner=None, shapes=())
UPDATE = InterestUpdate(version=9, whole=False, interests=(WEB, DB), removed=("shop/old",))


def test_an_update_comes_back() -> None:
    (message,) = interest_messages(UPDATE, 4)
    assert interests_from_message(message) == UPDATE


@pytest.mark.parametrize(("whole", "before"), [(True, 0), (False, 4)])
def test_a_large_update_has_its_version_only_when_all_is_told(*, whole: bool, before: int) -> None:
    interests = tuple(replace(WEB, binding=f"shop/{n:05}") for n in range(8_000))
    update = replace(UPDATE, whole=whole, interests=interests)
    parts = [interests_from_message(each) for each in interest_messages(update, 4)]
    assert len(parts) > 1
    assert sum((part.interests for part in parts), ()) == interests
    assert [part.whole for part in parts] == [whole] + [False] * (len(parts) - 1)
    assert [part.removed for part in parts] == [("shop/old",)] + [()] * (len(parts) - 1)
    assert [part.version for part in parts] == [before] * (len(parts) - 1) + [9]
    assert all(each.ByteSize() < 2 * PART_BYTES for each in interest_messages(update, 4))


def test_broken_rules_are_told_by_field() -> None:
    sought = agents_pb2.SoughtShape(planned=agents_pb2.Share(replicas=-1))
    message = agents_pb2.InterestUpdate(
        version=-1,
        bindings=[agents_pb2.BindingInterest(shapes=[sought])],
    )
    assert list(violations(interests_from_message, message)) == [
        "interest.version",
        "interest.bindings[0].binding",
        "interest.bindings[0].shapes[0].planned.replicas",
    ]
