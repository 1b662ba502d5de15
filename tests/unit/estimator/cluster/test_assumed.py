"""Pods that were let on nodes and are not seen there yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimator.cluster import assumed as module
from estimator.cluster.assumed import AssumedPods
from estimator.cluster.assumptions import BINDING_SECONDS, Assumptions
from estimator.cluster.claims import Claim
from estimator.nodes import Node
from estimator.snapshot import NodeTable
from federation.model.errors import Unavailable
from federation.model.resources import MAX_AMOUNT
from federation.model.shapes import ReservationKey, request_shape

KEY = ReservationKey("shop/web", "", request_shape({"cpu": 2}))


def table(*names: str) -> NodeTable:
    return NodeTable.of(Node(name=name) for name in names)


TWO = table("a", "b")


def on(*rows: bool) -> np.ndarray:
    return np.array(rows)


def taken(pods: AssumedPods, *claims: Claim, nodes: NodeTable = TWO) -> dict[str, list[int]]:
    found = {name: column.tolist() for name, column in pods.beside(claims, nodes).items()}
    return {name: amounts for name, amounts in found.items() if any(amounts)}


def claim(node: str, replicas: int) -> Claim:
    return Claim(node=node, replicas=replicas, request={"cpu": 2}, nonzero={}, promise=KEY)


def test_a_promises_pods_are_in_their_claims_as_long_as_those_last() -> None:
    pods = AssumedPods()
    for uid in ("p", "q"):
        pods.assume(uid, {"cpu": 2}, on(True, False), TWO, 0.0, KEY)
    assert taken(pods, claim("a", 3)) == {}
    assert taken(pods, claim("a", 1)) == {"cpu": [2, 0], "pods": [1, 0]}
    assert taken(pods) == {"cpu": [4, 0], "pods": [2, 0]}


def test_absurd_amounts_do_not_wrap_around() -> None:
    pods = AssumedPods()
    for number in range(50):
        pods.assume(f"p{number}", {"cpu": MAX_AMOUNT}, on(True, True), TWO, 0.0)
    assert min(taken(pods)["cpu"]) > 0


def test_too_many_on_their_way_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PODS", 2)
    pods = AssumedPods()
    for uid in ("p", "q"):
        pods.assume(uid, {"cpu": 1}, on(True, True), TWO, 0.0)
    with pytest.raises(Unavailable, match="2 pods were let on nodes"):
        pods.assume("r", {"cpu": 1}, on(True, True), TWO, 0.0)
    pods.assume("q", {"cpu": 2}, on(True, False), TWO, 0.0)
    pods.assume("r", {"cpu": 1}, on(True, True), TWO, BINDING_SECONDS)


@dataclass
class Naive:
    """What one pod may take, by node name."""

    names: set[str]
    cpu: int
    since: int


verbs = st.one_of(
    st.tuples(st.just("assume"), st.integers(0, 4), st.sets(st.sampled_from("abcd"))),
    st.tuples(st.just("drop"), st.integers(0, 4), st.none()),
    st.tuples(st.just("nodes"), st.none(), st.sets(st.sampled_from("abcd"))),
    st.tuples(st.just("wait"), st.integers(1, 70), st.none()),
)


@given(st.lists(verbs, max_size=30))
def test_as_a_naive_ledger_counts(history: list[tuple[str, Any, Any]]) -> None:
    assumptions = Assumptions()
    pods, ledger, nodes, now = AssumedPods(assumptions), {}, table("a", "b", "c", "d"), 0
    for verb, number, names in history:
        there = [node.name for node in nodes.nodes]
        match verb:
            case "assume":
                let = set(names) & set(there)
                mask = np.array([name in let for name in there], dtype=np.bool_)
                pods.assume(str(number), {"cpu": number + 1}, mask, nodes, now)
                ledger.pop(number, None)
                if let:
                    ledger[number] = Naive(names=let, cpu=number + 1, since=now)
            case "drop":
                pods.drop(str(number))
                ledger.pop(number, None)
            case "nodes":
                nodes = table(*sorted(names))
                for each in ledger.values():
                    each.names &= set(names)
                pods.beside((), nodes)
            case "wait":
                now += number
        assumptions.expire(now)
        ledger = {uid: each for uid, each in ledger.items() if now < each.since + BINDING_SECONDS}
        expected = [
            sum(each.cpu for each in ledger.values() if node.name in each.names)
            for node in nodes.nodes
        ]
        found = pods.beside((), nodes).get("cpu")
        assert (found.tolist() if found is not None else [0] * len(nodes)) == expected
