"""The cache must sum to the same whatever order events come in, and hand out stable snapshots."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from estimator.cluster.assumptions import BINDING_SECONDS
from estimator.cluster.cache import ClusterCache
from estimator.nodes import Node, Pod, PodState, Repulsion
from estimator.snapshot import Snapshot
from federation.model.resources import CPU, MEMORY, PODS

NODE_NAMES = ("a", "b", "c")
GPU = "example.com/gpu"
# 2,000 names of nodes take a fifth of it, 20,000 names three times as much.
MAX_KEPT_BYTES = 1_000_000


def node(name: str, **more: object) -> Node:
    return Node(name=name, allocatable={CPU: 4000, MEMORY: 8 << 30, PODS: 10}, **more)


def pod(uid: str, *, on: str = "", cpu: int = 100, state: PodState | None = None) -> Pod:
    return Pod(
        uid=uid,
        namespace="shop",
        name=uid,
        node=on,
        state=state or (PodState.BOUND if on else PodState.WAITING),
        request={CPU: cpu},
        nonzero={CPU: cpu, MEMORY: 200 << 20},
    )


def cache_of(nodes: Iterable[Node], pods: Iterable[Pod] = ()) -> ClusterCache:
    cache = ClusterCache()
    cache.replace_nodes(nodes)
    cache.replace_pods(pods)
    return cache


def test_a_snapshot_does_not_change_afterwards() -> None:
    cache = cache_of([node("a")], [pod("p", on="a", cpu=250)])
    before = cache.snapshot()
    cache.remove_pod("p")
    cache.put_node(node("b"))
    assert before.requested_n(CPU).tolist() == [250]
    assert cache.snapshot().free_n(CPU).tolist() == [4000, 4000]


def test_an_event_that_changes_nothing_keeps_the_snapshot() -> None:
    cache = cache_of([node("a")], [pod("p", on="a")])
    before = cache.snapshot()
    cache.put_node(node("a"))
    cache.put_pod(pod("p", on="a"))
    cache.remove_pod("never seen")
    cache.remove_node("never seen")
    assert cache.snapshot() is before


def test_a_pod_event_shares_the_node_table() -> None:
    cache = cache_of([node("a")])
    before = cache.snapshot()
    cache.put_pod(pod("p", on="a"))
    assert cache.snapshot().table is before.table


nodes = st.builds(
    node,
    st.sampled_from(NODE_NAMES),
    ready=st.booleans(),
    labels=st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
)
pods = st.builds(
    Pod,
    uid=st.sampled_from("pqrst"),
    namespace=st.just("shop"),
    name=st.just("pod"),
    node=st.sampled_from(NODE_NAMES),
    state=st.sampled_from(PodState),
    request=st.dictionaries(st.sampled_from((CPU, MEMORY, GPU)), st.integers(1, 1000)),
    nonzero=st.fixed_dictionaries({CPU: st.integers(1, 9), MEMORY: st.integers(1, 9)}),
    nominated_node=st.sampled_from(["", *NODE_NAMES]),
)
events = st.one_of(
    nodes.map(lambda each: ("put_node", each)),
    pods.map(lambda each: ("put_pod", each)),
    st.sampled_from(NODE_NAMES).map(lambda name: ("remove_node", name)),
    st.sampled_from("pqrst").map(lambda uid: ("remove_pod", uid)),
    st.just(("snapshot", None)),
)


@given(st.lists(events, max_size=40))
def test_incremental_equals_from_scratch(history: list[tuple[str, object]]) -> None:
    cache = ClusterCache()
    known_nodes: dict[str, Node] = {}
    known_pods: dict[str, Pod] = {}
    for verb, subject in history:
        match subject:
            case Node():
                known_nodes[subject.name] = subject
            case Pod():
                known_pods[subject.uid] = subject
            case str():
                (known_nodes if verb == "remove_node" else known_pods).pop(subject, None)
        getattr(cache, verb)(*([] if subject is None else [subject]))
    assert_same(cache.snapshot(), cache_of(known_nodes.values(), known_pods.values()).snapshot())
    assert_counted(cache.snapshot(), known_pods.values())


def assert_same(left: Snapshot, right: Snapshot) -> None:
    assert left.table.nodes == right.table.nodes
    for ours, others in ((left.requested, right.requested), (left.nonzero, right.nonzero)):
        for name in ours.keys() | others.keys():
            zeros = np.zeros(len(left), dtype=np.int64)
            assert ours.get(name, zeros).tolist() == others.get(name, zeros).tolist()
    assert (left.waiting, left.gated, left.dropped, left.homeless) == (
        right.waiting,
        right.gated,
        right.dropped,
        right.homeless,
    )


def assert_counted(snapshot: Snapshot, known_pods: Iterable[Pod]) -> None:
    """Every pod that is not done is in exactly one sum."""
    counted = int(snapshot.requested_n(PODS).sum()) - len(snapshot.nominated)
    for total in (snapshot.waiting, snapshot.gated, snapshot.dropped, snapshot.homeless):
        counted += total.get(PODS, 0)
    assert counted == sum(not each.state.is_over for each in known_pods)


def test_nodes_that_pods_only_name_are_forgotten_with_their_pods() -> None:
    cache = cache_of([node("a")], [pod("p", on="a", cpu=250), pod("q", on="nowhere", cpu=70)])
    tracemalloc.start()
    for number in range(20_000):
        cache.put_pod(pod("r", on=f"nowhere-{number}"))
        if number % 100 == 0:
            assert cache.snapshot().homeless == {CPU: 170, PODS: 2}
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < MAX_KEPT_BYTES
    cache.remove_pod("r")
    assert cache.snapshot().homeless == {CPU: 70, PODS: 1}
    assert cache.snapshot().requested_n(CPU).tolist() == [250]


def test_assumed_pod_counts_until_it_is_seen_bound() -> None:
    settled: list[str] = []
    cache = ClusterCache(on_bound=lambda seen: settled.append(seen.node))
    cache.replace_nodes([node("a"), node("b")])
    cache.put_pod(pod("p", cpu=250))

    cache.assume(pod("p", cpu=250), "a", 0.0)
    cache.put_pod(pod("p", cpu=250))  # an event from before the binding
    assert cache.snapshot().requested_n(CPU).tolist() == [250, 0]
    cache.put_pod(pod("p", on="a", cpu=250))
    assert cache.snapshot().requested_n(CPU).tolist() == [250, 0]
    assert settled == ["a"]

    cache.remove_pod("p")
    assert cache.snapshot().requested_n(CPU).tolist() == [0, 0]


def test_assumption_may_be_taken_back() -> None:
    cache = cache_of([node("a")], [pod("p", cpu=250)])
    cache.assume(pod("p", cpu=250), "a", 0.0)
    cache.take_back("p")
    assert cache.snapshot().requested_n(CPU).tolist() == [0]
    assert cache.snapshot().waiting[CPU] == 250
    cache.take_back("never heard of")


def test_pod_seen_on_another_node_than_assumed_counts_there() -> None:
    cache = cache_of([node("a"), node("b")], [pod("p", cpu=250)])
    cache.assume(pod("p", cpu=250), "a", 0.0)
    cache.put_pod(pod("p", on="b", cpu=250))
    cache.take_back("p")
    assert cache.snapshot().requested_n(CPU).tolist() == [0, 250]


def test_a_pod_that_was_deleted_or_has_ended_is_not_assumed() -> None:
    cache = cache_of([node("a")], [pod("p", cpu=250), pod("q", cpu=250)])
    cache.remove_pod("p")
    cache.put_pod(pod("q", cpu=250)._replace(state=PodState.SUCCEEDED))
    assert not cache.assume(pod("p", cpu=250), "a", 0.0)
    assert not cache.assume(pod("q", cpu=250), "a", 0.0)
    assert cache.snapshot().requested_n(CPU).tolist() == [0]
    assert cache.pod("p") is None


def test_a_pod_that_only_a_binder_knows_is_forgotten() -> None:
    cache = cache_of([node("a")], [])
    assert cache.assume(pod("p", cpu=250), "a", 0.0)
    cache.replace_pods([])  # a list from before the pod
    assert cache.snapshot().requested_n(CPU).tolist() == [250]
    cache.assumptions.expire(BINDING_SECONDS)
    assert (cache.snapshot().requested_n(CPU).tolist(), cache.pod("p")) == ([0], None)

    assert cache.assume(pod("q", cpu=250), "a", 0.0)
    cache.take_back("q")
    assert (dict(cache.snapshot().waiting), cache.pod("q")) == ({}, None)


def test_a_pod_that_another_watch_shows_on_its_node_stays() -> None:
    cache = cache_of([node("a")], [])
    cache.assume(pod("p", cpu=250), "a", 0.0)
    cache.confirm("p")
    cache.assumptions.expire(BINDING_SECONDS)
    cache.put_pod(pod("p", cpu=250))  # an event from before the binding
    assert cache.snapshot().requested_n(CPU).tolist() == [250]
    cache.replace_pods([])
    assert cache.snapshot().requested_n(CPU).tolist() == [0]


def test_a_pod_that_is_shown_without_a_node_waits_again_after_a_while() -> None:
    cache = cache_of([node("a")], [pod("p", cpu=250)])
    assert cache.assume(pod("p", cpu=250), "a", 0.0)
    cache.assumptions.expire(BINDING_SECONDS - 1)
    assert cache.snapshot().requested_n(CPU).tolist() == [250]
    cache.assumptions.expire(BINDING_SECONDS)
    assert cache.snapshot().requested_n(CPU).tolist() == [0]
    assert cache.snapshot().waiting[CPU] == 250


def test_bound_pods_that_repel_others_are_known() -> None:
    away = (Repulsion(namespaces=None, requirements=()),)
    waiting, bound = (each._replace(repulsions=away) for each in (pod("p"), pod("p", on="a")))
    cache = cache_of([node("a")], [waiting, pod("q", on="a")])
    assert list(cache.repelling()) == []
    cache.put_pod(bound)
    assert list(cache.repelling()) == [bound]
    cache.remove_pod("p")
    assert list(cache.repelling()) == []


def nominated(uid: str, node: str, *, cpu: int = 100, priority: int = 0) -> Pod:
    return pod(uid, cpu=cpu)._replace(nominated_node=node, priority=priority)


def test_a_nominated_pod_takes_its_room_until_it_is_bound_elsewhere() -> None:
    cache = cache_of([node("a"), node("b")], [nominated("p", "a", cpu=250)])
    snapshot = cache.snapshot()
    assert snapshot.requested_n(CPU).tolist() == [250, 0]
    assert snapshot.requested_n(PODS).tolist() == [1, 0]
    assert snapshot.waiting[CPU] == 250
    assert snapshot.nominated_amounts(np.array([True, False])) == {CPU: 250, PODS: 1}
    cache.put_pod(pod("p", on="b", cpu=250))
    assert cache.snapshot().requested_n(CPU).tolist() == [0, 250]


def test_a_nomination_for_a_node_that_is_not_there_takes_nothing() -> None:
    cache = cache_of([node("a")], [nominated("p", "gone", cpu=250)])
    assert cache.snapshot().requested_n(CPU).tolist() == [0]
    cache.put_node(node("gone"))
    assert cache.snapshot().requested_n(CPU).tolist() == [0, 250]
    cache.remove_pod("p")
    assert cache.snapshot().requested_n(CPU).tolist() == [0, 0]


def test_only_pods_of_no_higher_priority_keep_off_a_nomination() -> None:
    cache = cache_of([node("a")], [nominated("p", "a", cpu=250, priority=10)])
    snapshot = cache.snapshot()
    found = {
        (uid, priority): snapshot.seen_by(uid, priority).requested_n(CPU).tolist()
        for uid, priority in (("q", 9), ("q", 10), ("q", 11), ("p", 10))
    }
    assert found == {("q", 9): [250], ("q", 10): [250], ("q", 11): [0], ("p", 10): [0]}


def test_a_nominated_pod_of_a_promise_takes_no_room_beside_it() -> None:
    promised: set[str] = set()
    cache = ClusterCache(is_promised=lambda each: each.uid in promised)
    cache.replace_nodes([node("a")])
    cache.put_pod(nominated("p", "a", cpu=250))
    assert cache.snapshot().requested_n(CPU).tolist() == [250]
    promised.add("p")
    cache.promises_changed()
    assert cache.snapshot().requested_n(CPU).tolist() == [0]
