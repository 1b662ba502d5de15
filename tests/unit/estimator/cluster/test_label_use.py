"""Labels that pools are told apart by: those that pods and requests name, and no others."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from estimator.cluster.label_use import KEPT_UNUSED, MOST_KEYS, RECENT_REQUESTS, LabelUse
from estimator.nodes import Pod, PodState
from federation.model.workload import (
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    Requirement,
)

KEYS = ["arch", "disk", "rack", "zone"]


def pod(*keys: str, uid: str = "p", state: PodState = PodState.BOUND) -> Pod:
    return Pod(uid=uid, namespace="shop", name=uid, node="a", state=state, selects_by=keys)


def used(*counts: tuple[str, int]) -> LabelUse:
    use = LabelUse()
    add(use, *counts)
    return use


def add(use: LabelUse, *counts: tuple[str, int]) -> None:
    for key, count in counts:
        for _ in range(count):
            use.follow(None, pod(key))


def test_the_most_used_come_first() -> None:
    assert used(("zone", 2), ("disk", 9), ("arch", 2)).choose() == ("disk", "arch", "zone")


def test_requests_count_like_pods_as_long_as_they_are_recent() -> None:
    use = LabelUse()
    term = NodeSelectorTerm(
        match_expressions=(Requirement(key="disk", operator=Operator.EXISTS),),
        match_fields=(Requirement(key="metadata.name", operator=Operator.IN, values=("a",)),),
    )
    use.asked([NodeClaim(node_selector={"zone": "a"}, required_terms=(term,)), None, NodeClaim()])
    assert use.choose() == ("disk", "zone")
    use.asked([NodeClaim(node_selector={"arch": "arm64"})] * RECENT_REQUESTS)
    assert use.choose()[0] == "arch"
    for _ in range(KEPT_UNUSED):
        use.choose()
    assert use.choose() == ("arch",)


def test_a_little_more_use_changes_nothing() -> None:
    use = used(("disk", 10), ("zone", 9))
    assert use.choose() == ("disk", "zone")
    add(use, ("zone", 10))
    assert use.choose() == ("disk", "zone")
    add(use, ("zone", 1))
    assert use.choose() == ("zone", "disk")
    add(use, ("disk", 11))
    assert use.choose() == ("zone", "disk")


def test_a_key_that_comes_and_goes_stays() -> None:
    use = used(("disk", 5))
    for _ in range(3):
        use.follow(None, pod("zone"))
        assert use.choose() == ("disk", "zone")
        use.follow(pod("zone"), None)
        for _ in range(KEPT_UNUSED):
            assert use.choose() == ("disk", "zone")
    assert use.choose() == ("disk",)


def test_pods_that_have_ended_ask_for_nothing() -> None:
    use = LabelUse()
    use.follow(None, pod("zone", state=PodState.WAITING))
    use.follow(pod("zone", state=PodState.WAITING), pod("zone"))
    assert use.choose() == ("zone",)
    use.follow(pod("zone"), pod("zone", state=PodState.DONE))
    for _ in range(KEPT_UNUSED):
        use.choose()
    assert use.choose() == ()


def test_there_is_an_end_to_them() -> None:
    use = used(*((f"key-{number:02}", 40 - number) for number in range(40)))
    assert use.choose() == tuple(f"key-{number:02}" for number in range(MOST_KEYS))
    add(use, ("late", 1000))
    assert use.choose()[0] == "late"


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), max_size=60))
def test_choosing_again_changes_nothing(events: Iterable[tuple[str, bool]]) -> None:
    use, present = LabelUse(), list[str]()
    for key, comes in events:
        if comes:
            present.append(key)
            use.follow(None, pod(key))
        elif key in present:
            present.remove(key)
            use.follow(pod(key), None)
        chosen = use.choose()
        assert use.choose() == chosen
        assert set(present) <= set(chosen)
