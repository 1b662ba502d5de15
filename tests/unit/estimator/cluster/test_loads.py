"""Sums kept in columns are those of the pods that are there."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from estimator.cluster.loads import NodeLoads
from estimator.nodes import Pod, PodState
from federation.model.resources import CPU, MAX_AMOUNT, MEMORY, PODS

NODES = ("a", "b", "c", "d")
GPU = "example.com/gpu"

amounts = st.sampled_from([1, 7, 1000, MAX_AMOUNT])
pods = st.builds(
    Pod,
    uid=st.just("p"),
    namespace=st.just("shop"),
    name=st.just("p"),
    state=st.just(PodState.BOUND),
    node=st.sampled_from(NODES),
    request=st.dictionaries(st.sampled_from((CPU, MEMORY, GPU)), amounts),
    nonzero=st.fixed_dictionaries({CPU: amounts, MEMORY: amounts}),
)
rows = st.lists(st.sampled_from(NODES), unique=True)


@given(st.lists(pods | st.integers(0, 20) | rows, max_size=30), rows)
def test_columns_hold_the_sums_of_the_pods(
    history: list[Pod | int | list[str]], names: list[str]
) -> None:
    loads = NodeLoads()
    there: list[Pod] = []
    for event in history:
        match event:
            case Pod():
                there.append(event)
                loads.add(event, +1)
            case int() if there:
                loads.add(there.pop(event % len(there)), -1)
            case list():
                loads.arrange(event)
    loads.arrange(names)
    for node in (*names, "elsewhere"):
        requested, nonzero = Counter[str](), Counter[str]()
        for pod in there:
            if pod.node == node or (node == "elsewhere" and pod.node not in names):
                requested.update({**pod.request, PODS: 1})
                nonzero.update(pod.nonzero)
        if node == "elsewhere":
            assert loads.homeless() == requested
            continue
        for columns, sums in ((loads.requested(), requested), (loads.nonzero(), nonzero)):
            found = {name: column[names.index(node)] for name, column in columns.items()}
            stopped = {name: min(amount, MAX_AMOUNT) for name, amount in sums.items()}
            assert {name: amount for name, amount in found.items() if amount} == stopped


def test_what_no_pod_asks_for_any_more_has_no_column() -> None:
    loads = NodeLoads()
    pod = Pod("p", "shop", "p", PodState.BOUND, "a", request={GPU: 1})
    loads.arrange(["a"])
    loads.add(pod, +1)
    assert loads.requested().keys() == {GPU, PODS}
    loads.add(pod, -1)
    loads.arrange(["a"])
    assert loads.requested().keys() == {PODS}


def test_what_was_handed_out_stays_as_it_was() -> None:
    loads = NodeLoads()
    pod = Pod("p", "shop", "p", PodState.BOUND, "a", request={CPU: 5})
    loads.arrange(["a"])
    loads.add(pod, +1)
    before = loads.requested()
    loads.add(pod, +1)
    assert before[CPU].tolist() == [5]
    assert not before[CPU].flags.writeable
