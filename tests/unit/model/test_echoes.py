"""Which reservation a pod stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from federation.capacity.ledger import ClusterLedger
from federation.model.echoes import (
    Interest,
    Lookout,
    Owner,
    PodOrigin,
    PodSighting,
    SightingState,
    SoughtShape,
)
from federation.model.reservations import PromiseCertificate, Share
from federation.model.shapes import Echo, request_shape
from federation.model.workload import ReplicaRequirements
from lab.promising import echoes_of, interests_of

OLD, NEW, OTHER = {"cpu": 100}, {"cpu": 200}, {"cpu": 275}
WEB = Owner("apps/v1", "Deployment", "default", "web")


def sought(request: Mapping[str, int], *decisions: str, component: str = "") -> SoughtShape:
    return SoughtShape(component=component, shape=request_shape(request), decisions=decisions)


INTEREST = Interest(
    binding="default/web",
    uid="uid-1",
    owner=WEB,
    shapes=(sought(NEW, "d2", "d3"), sought(OLD, "d1")),
)


def pod(
    request: Mapping[str, int],
    state: SightingState = SightingState.BOUND,
    owner: Owner | None = WEB,
    **labels: str,
) -> PodSighting:
    written = {f"fedsched.io/{name}": value for name, value in labels.items()}
    origin = PodOrigin.of(written, (owner,) if owner else ())
    return PodSighting(state=state, request=request, origin=origin)


def counted(*pods: PodSighting, interest: Interest = INTEREST) -> dict[str, int]:
    names = {each.shape: f"{each.component}{dict(each.shape)}" for each in interest.shapes}
    return {names[each.shape]: each.bound for each in echoes_of([interest], pods)}


def test_pods_are_counted_by_what_they_do() -> None:
    states = [
        SightingState.BOUND,
        SightingState.UNBOUND,
        SightingState.FINISHED,
        SightingState.BOUND,
    ]
    (echo,) = echoes_of([INTEREST], [pod(NEW, state) for state in states])
    assert echo == Echo(
        binding="default/web", shape=request_shape(NEW), bound=2, unbound=1, finished=1
    )


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
        binding="default/web",
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
        ledger = ledger.decided("default/web", decision, [share])
    newest, older = INTEREST.shapes
    shapes = (replace(newest, promised=1), replace(older, promised=0))
    expected = replace(INTEREST, shapes=shapes)
    assert interests_of(ledger, {"default/web": WEB}, {"default/web": "uid-1"}) == (expected,)


def test_agents_claim_nodes_for_what_is_promised_by_plan() -> None:
    planned = Share(
        requirements=ReplicaRequirements(request=NEW),
        replicas=3,
        certificate=PromiseCertificate.PLANNED,
    )
    careful = Share(requirements=ReplicaRequirements(request=OTHER), replicas=1)
    ledger = ClusterLedger(cluster="member1").decided("default/web", "d1", [planned])
    ledger = ledger.decided("default/db", "d2", [careful])
    db, web = interests_of(ledger, {}, {})
    assert [each.planned for each in web.shapes] == [planned]
    assert [each.planned for each in db.shapes] == [None]


def test_the_nearest_owner_that_is_looked_for_has_the_pod() -> None:
    job = Owner("batch/v1", "Job", "default", "backup-7")
    cron = Owner("batch/v1", "CronJob", "default", "backup")
    origin = PodOrigin.of({}, (job, cron))
    of_job = Interest(binding="default/a", owner=job, shapes=(sought(NEW),))
    of_cron = Interest(binding="default/b", owner=cron, shapes=(sought(NEW),))
    assert Lookout([of_cron]).of(origin) == of_cron
    assert Lookout([of_cron, of_job]).of(origin) == of_job


def test_two_bindings_of_one_workload_do_not_both_have_its_pods() -> None:
    first, second = (
        Interest(binding=name, owner=WEB, shapes=(sought(NEW),)) for name in ("a", "b")
    )
    origin = PodOrigin.of({}, (WEB,))
    for lookout in (Lookout([first, second]), Lookout([second, first])):
        assert lookout.of(origin) == first
        lookout.remove("a")
        assert lookout.of(origin) == second
        lookout.remove("b")
        assert lookout.of(origin) is None
