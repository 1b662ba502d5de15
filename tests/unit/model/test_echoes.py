"""Which reservation a pod stands for."""

from __future__ import annotations

from collections.abc import Mapping

from federation.model.echoes import (
    Interest,
    Owner,
    PodSighting,
    PodState,
    SoughtShape,
    echoes_of,
    interests_of,
)
from federation.model.ledger import ClusterLedger
from federation.model.reservations import Share
from federation.model.shapes import Echo, request_shape
from federation.model.workload import ReplicaRequirements

OLD, NEW, OTHER = {"cpu": 100}, {"cpu": 200}, {"cpu": 275}
WEB = Owner("apps/v1", "Deployment", "default", "web")


def sought(request: Mapping[str, int], *decisions: str, component: str = "") -> SoughtShape:
    return SoughtShape(component=component, shape=request_shape(request), decisions=decisions)


INTEREST = Interest(binding="uid-1", owner=WEB, shapes=(sought(NEW, "d2", "d3"), sought(OLD, "d1")))


def pod(
    request: Mapping[str, int],
    state: PodState = PodState.BOUND,
    owner: Owner | None = WEB,
    **labels: str,
) -> PodSighting:
    written = {f"fedsched.io/{name}": value for name, value in labels.items()}
    return PodSighting(state=state, request=request, labels=written, owner=owner)


def counted(*pods: PodSighting, interest: Interest = INTEREST) -> dict[str, int]:
    names = {each.shape: f"{each.component}{dict(each.shape)}" for each in interest.shapes}
    return {names[each.shape]: each.bound for each in echoes_of([interest], pods)}


def test_pods_are_counted_by_what_they_do() -> None:
    states = [PodState.BOUND, PodState.UNBOUND, PodState.FINISHED, PodState.BOUND]
    (echo,) = echoes_of([INTEREST], [pod(NEW, state) for state in states])
    assert echo == Echo(binding="uid-1", shape=request_shape(NEW), bound=2, unbound=1, finished=1)


def test_the_label_says_whose_a_pod_is_and_else_its_owner() -> None:
    assert counted(pod(NEW, owner=None, binding="uid-1")) == {"{'cpu': 200}": 1}
    assert counted(pod(NEW)) == {"{'cpu': 200}": 1}
    assert counted(pod(NEW, owner=None)) == {}
    assert counted(pod(NEW, owner=Owner("apps/v1", "Deployment", "other", "web"))) == {}


def test_a_pod_has_the_newest_shape_unless_something_says_otherwise() -> None:
    assert counted(pod(OTHER)) == {"{'cpu': 200}": 1}
    assert counted(pod(OLD)) == {"{'cpu': 100}": 1}
    assert counted(pod(OTHER, decision="d1")) == {"{'cpu': 100}": 1}
    assert counted(pod(OTHER, decision="d2")) == {"{'cpu': 200}": 1}
    assert counted(pod(OTHER, decision="unheard-of")) == {"{'cpu': 200}": 1}


def test_the_decision_says_more_than_the_request() -> None:
    assert counted(pod(OLD, decision="d3")) == {"{'cpu': 200}": 1}
    assert counted(pod(NEW, decision="d1")) == {"{'cpu': 100}": 1}


def test_components_go_by_label_then_request_then_place() -> None:
    interest = Interest(
        binding="uid-1",
        owner=WEB,
        shapes=(sought(NEW, component="a"), sought(OLD, component="b")),
    )
    assert counted(pod(NEW, component="b"), interest=interest) == {"b{'cpu': 100}": 1}
    assert counted(pod(OLD), interest=interest) == {"b{'cpu': 100}": 1}
    assert counted(pod(OTHER), interest=interest) == {"a{'cpu': 200}": 1}
    assert counted(pod(OTHER, component="c"), interest=interest) == {"a{'cpu': 200}": 1}


def test_agents_are_told_every_shape_the_newest_first() -> None:
    ledger = ClusterLedger(cluster="member1")
    for decision, request in (("d1", OLD), ("d2", NEW), ("d3", NEW)):
        share = Share(requirements=ReplicaRequirements(request=request), replicas=1)
        ledger = ledger.decided("uid-1", decision, [share])
    assert interests_of(ledger, {"uid-1": WEB}) == (INTEREST,)
