"""Gangs by themselves: who waits, who goes together, and who goes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimator.binder.gangs import (
    MINIMUM_LABEL,
    NAME_LABEL,
    PERMIT_SECONDS,
    Gangs,
    UnreadableGroup,
    membership,
)
from estimator.placing.incoming import IncomingPod
from tests.pods import incoming, member


def gangs_of(*pods: IncomingPod) -> Gangs:
    gangs = Gangs()
    for pod in pods:
        gangs.see(pod)
    return gangs


def trio(minimum: int = 3) -> list[IncomingPod]:
    return [member(f"p{number}", "g", minimum) for number in range(3)]


@pytest.mark.parametrize(
    "labels", [{}, {NAME_LABEL: "g"}, {MINIMUM_LABEL: "3"}, {NAME_LABEL: "", MINIMUM_LABEL: "3"}]
)
def test_pod_without_both_labels_is_ordinary(labels: dict[str, str]) -> None:
    pod = incoming("p", labels=labels)
    assert membership(pod) is None
    gangs = gangs_of(pod)
    assert gangs.why_not_yet(pod) == ""
    assert [each.node for each in gangs.permit(pod, "n", 0.0)] == ["n"]


@pytest.mark.parametrize("minimum", ["many", "3.0", "1_0", "٣"])
def test_number_that_is_none(minimum: str) -> None:
    with pytest.raises(UnreadableGroup, match="min-available"):
        Gangs().see(member("p", "g", minimum))


@pytest.mark.parametrize("minimum", [0, -4, 1])
def test_group_of_at_most_one_goes_at_once(minimum: int) -> None:
    pod = member("p", "g", minimum)
    assert len(gangs_of(pod).permit(pod, "n", 0.0)) == 1


def test_nobody_is_tried_before_there_are_enough() -> None:
    first, second, third = trio()
    gangs = gangs_of(first, second)
    assert gangs.why_not_yet(first) == "group d/g has 2 of 3 pods"
    gangs.see(third)
    assert gangs.why_not_yet(first) == ""
    gangs.forget(third.uid)
    assert gangs.why_not_yet(first) == "group d/g has 2 of 3 pods"


def test_first_pod_says_what_the_group_is() -> None:
    first, other = member("p0", "g", 1, priority=5), member("p1", "g", 2)
    gangs = gangs_of(first, other, member("p2", "g", 1, priority=6))
    assert gangs.why_not_yet(other) == "group d/g asks for 1 pod, not 2"
    assert gangs.why_not_yet(member("p2", "g", 1, priority=6)) == "group d/g has priority 5, not 6"


def test_groups_of_other_namespaces_are_others() -> None:
    gangs = gangs_of(*trio(), member("x", "g", 1, namespace="other"))
    assert gangs.others("x-uid") == []


def test_all_go_when_the_last_has_a_node() -> None:
    first, second, third = trio()
    gangs = gangs_of(first, second, third)
    assert gangs.permit(first, "a", 0.0) == []
    assert gangs.permit(second, "b", 1.0) == []
    released = gangs.permit(third, "a", 2.0)
    assert [(each.pod.name, each.node) for each in released] == [
        ("p0", "a"),
        ("p1", "b"),
        ("p2", "a"),
    ]
    assert gangs.next_deadline() is None
    assert gangs.expired(1e9) == []


def test_late_pod_of_a_complete_group_need_not_wait() -> None:
    first, second, third = trio(minimum=2)
    gangs = gangs_of(first, second, third)
    gangs.permit(first, "a", 0.0)
    assert len(gangs.permit(second, "a", 0.0)) == 2
    assert len(gangs.permit(third, "a", 0.0)) == 1
    gangs.not_bound(first.uid)
    gangs.not_bound(second.uid)
    gangs.not_bound(third.uid)
    assert gangs.permit(third, "a", 0.0) == []


def test_bound_pods_count() -> None:
    first, second, third = trio()
    bound = [member(pod.name, "g", 3, node="n") for pod in (first, second)]
    gangs = gangs_of(*bound, third)
    assert len(gangs.permit(third, "a", 0.0)) == 1


def test_group_that_does_not_come_together_goes_back_whole() -> None:
    first, second, third = trio()
    gangs = gangs_of(first, second, third)
    gangs.permit(first, "a", 5.0)
    gangs.permit(second, "a", 9.0)
    assert gangs.next_deadline() == 5.0 + PERMIT_SECONDS
    assert gangs.expired(4.9 + PERMIT_SECONDS) == []
    assert {each.pod.name for each in gangs.expired(5.0 + PERMIT_SECONDS)} == {"p0", "p1"}
    assert gangs.expired(1e9) == []


def test_failure_of_one_sends_all_that_wait_back() -> None:
    first, second, third = trio()
    gangs = gangs_of(first, second, third)
    gangs.permit(first, "a", 0.0)
    assert [each.pod.name for each in gangs.reject(second.uid)] == ["p0"]
    assert gangs.permit(third, "a", 0.0) == []
    assert [each.pod.name for each in gangs.reject_all()] == ["p2"]
    assert gangs.reject("unheard-of") == []


def test_pod_that_leaves_waits_no_more() -> None:
    first, second, third = trio(minimum=2)
    gangs = gangs_of(first, second, third)
    gangs.permit(first, "a", 0.0)
    gangs.forget(first.uid)
    assert gangs.permit(second, "a", 0.0) == []


def test_group_is_forgotten_with_its_last_pod() -> None:
    first, *_ = trio()
    gangs = gangs_of(first)
    gangs.forget(first.uid)
    gangs.see(member("q", "g", 1))
    assert gangs.why_not_yet(member("q", "g", 1)) == ""


def test_pod_may_change_its_group() -> None:
    pod = member("p", "g", 2)
    gangs = gangs_of(pod, member("q", "g", 2))
    gangs.see(member("p", "h", 1))
    assert gangs.others("p-uid") == []
    assert gangs.others("q-uid") == []
    gangs.see(incoming("p"))
    assert len(gangs.permit(incoming("p"), "n", 0.0)) == 1


def test_pods_of_a_group_stand_together_in_the_queue() -> None:
    old, young = member("z", "g", 2, created_at=1.0), member("a", "g", 2, created_at=9.0)
    between = incoming("between", created_at=5.0)
    urgent = incoming("urgent", created_at=9.0, priority=1)
    gangs = gangs_of(old, young, between, urgent)
    ordered = sorted([between, young, urgent, old], key=gangs.order)
    assert [pod.name for pod in ordered] == ["urgent", "a", "z", "between"]


@given(
    minimum=st.integers(1, 5),
    events=st.lists(st.tuples(st.sampled_from("prfu"), st.integers(0, 4)), max_size=40),
)
def test_never_fewer_than_the_minimum_go(minimum: int, events: list[tuple[str, int]]) -> None:
    pods = [member(f"p{number}", "g", minimum) for number in range(5)]
    gangs = gangs_of(*pods)
    going: set[str] = set()
    for kind, number in events:
        pod = pods[number]
        if kind == "p" and pod.uid not in going:
            released = {each.pod.uid for each in gangs.permit(pod, "n", 0.0)}
            assert not released or len(going | released) >= minimum
            going |= released
        elif kind == "r":
            assert not {each.pod.uid for each in gangs.reject(pod.uid)} & going
        elif kind == "u":
            gangs.not_bound(pod.uid)
            going.discard(pod.uid)
        elif kind == "f":
            gangs.forget(pod.uid)
            going.discard(pod.uid)
            gangs.see(pod)
