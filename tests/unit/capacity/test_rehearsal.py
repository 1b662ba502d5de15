"""Rehearsals put pods where a scheduler puts them that looks at all nodes for each of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.capacity.rehearsal import Part, RehearsedNodes, Taste, placed, room_for
from federation.capacity.second_looks import TASTES
from federation.model.arrays import IntArray

RESOURCES = ("cpu", "memory", "pods")
MIB = 1 << 20
UNASKED = {"cpu": 100, "memory": 200 * MIB}

amounts = st.tuples(st.integers(1, 16), st.integers(1, 16), st.integers(0, 9), st.integers(0, 9))
nodes = st.lists(st.tuples(amounts, st.integers(0, 6), st.booleans()), min_size=1, max_size=6)
requests = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from([0, 100, 250, 1000, 3000]),
        "memory": st.sampled_from([0, 64 * MIB, 700 * MIB, 4000 * MIB]),
    },
)


@given(
    rows=nodes,
    request=requests,
    replicas=st.integers(0, 30),
    taste=st.sampled_from([*TASTES, Taste(by_change=False, turn=1)]),
)
def test_pods_go_where_they_go_one_by_one(
    rows: list[tuple[tuple[int, int, int, int], int, bool]],
    request: dict[str, int],
    replicas: int,
    taste: Taste,
) -> None:
    stage = stage_of(rows)
    part = Part(request, np.array([True, False]), replicas)
    expected = one_by_one(stage, part, taste)
    found = placed(stage, part, taste)
    assert (found is None) == (expected is None)
    assert room_for(stage, part) >= replicas or found is None
    if found is not None and expected is not None:
        assert np.array_equal(found.free_rk, expected)
        assert (found.free_rk >= 0).all()


@pytest.mark.parametrize("taste", TASTES)
@pytest.mark.parametrize("replicas", [1, 5, 7, 8, 20])
def test_alike_nodes_are_one_cell(taste: Taste, replicas: int) -> None:
    row = ((8, 8, 1, 2), 5, True), ((4, 8, 0, 3), 6, True)
    apart = stage_of([row[0]] * 4 + [row[1]] * 3)
    both = stage_of(list(row))
    together = RehearsedNodes(
        resources=both.resources,
        pool_k=both.pool_k,
        count_k=np.array([4, 3]),
        free_rk=both.free_rk,
        allocatable_sk=both.allocatable_sk,
    )
    part = Part({"cpu": 1000, "memory": 700 * MIB}, np.array([True]), replicas)
    one, other = placed(apart, part, taste), placed(together, part, taste)
    assert one is not None
    assert other is not None
    assert nodes_in(one) == nodes_in(other)
    assert int(other.count_k.sum()) == 7


def test_what_nobody_has_is_never_placed() -> None:
    stage = stage_of([((8, 8, 0, 0), 5, True)])
    part = Part({"nvidia.com/gpu": 1}, np.array([True]), 1)
    assert placed(stage, part, TASTES[0]) is None
    assert placed(stage, part._replace(replicas=0), TASTES[0]) is stage


def test_what_does_not_go_together_is_put_somewhere() -> None:
    stage = stage_of([((8, 8, 0, 0), 5, True)])
    odd = replace(stage, allocatable_sk=np.array([[0], [1]]))
    assert placed(odd, Part({"cpu": 1000}, np.array([True]), 3), TASTES[0]) is not None
    endless = replace(stage, free_rk=np.full((3, 1), 10**15))
    assert placed(endless, Part({"cpu": 1}, np.array([True]), 10**7), TASTES[0]) is None


def stage_of(rows: list[tuple[tuple[int, int, int, int], int, bool]]) -> RehearsedNodes:
    """Of each node cores, gibibytes, what is taken of both, free slots, and whether it suits."""
    total_sk = np.array(
        [[c * 1000 for (c, *_), _, _ in rows], [m * 1024 * MIB for (_, m, *_), *_ in rows]]
    )
    taken_sk = np.array(
        [[t * 500 for (_, _, t, _), *_ in rows], [t * 512 * MIB for (*_, t), *_ in rows]]
    )
    free_sk = np.maximum(total_sk - taken_sk, 0)
    slots = np.array([[slots for _, slots, _ in rows]])
    return RehearsedNodes(
        resources=RESOURCES,
        pool_k=np.array([0 if suits else 1 for *_, suits in rows], dtype=np.int32),
        count_k=np.ones(len(rows), dtype=np.int64),
        free_rk=np.vstack([free_sk, slots]),
        allocatable_sk=total_sk,
    )


def nodes_in(stage: RehearsedNodes) -> list[tuple[int, ...]]:
    return sorted(map(tuple, stage.free_rk.repeat(stage.count_k, axis=1).T.tolist()))


def one_by_one(stage: RehearsedNodes, part: Part, taste: Taste) -> IntArray | None:
    """As kube-scheduler does it, in Python's whole numbers but for the balance."""
    free_rk: IntArray = stage.free_rk.copy()
    asked_r = np.array([part.request.get("cpu", 0), part.request.get("memory", 0), 1])
    for _ in range(part.replicas):
        fitting = [
            k
            for k in range(len(stage.count_k))
            if part.suiting_p[stage.pool_k[k]] and (free_rk[:, k] >= asked_r).all()
        ]
        if not fitting:
            return None
        scores = {k: score(free_rk[:, k], stage.allocatable_sk[:, k], part, taste) for k in fitting}
        best = [k for k in fitting if scores[k] == max(scores.values())]
        free_rk[:, best[-1 if taste.turn else 0]] -= asked_r
    return free_rk


def score(free_r: IntArray, total_s: IntArray, part: Part, taste: Taste) -> int:
    fit, before, after = 0, [], []
    for place, name in enumerate(("cpu", "memory")):
        total, free = int(total_s[place]), int(free_r[place])
        asked = part.request.get(name, 0)
        left = max(free - (asked or UNASKED[name]), 0)
        fit += left * 100 // total
        before.append(min((total - free) / total, 1.0))
        after.append(min((total - free + asked) / total, 1.0))
    was, now = (int((1 - abs(one - other) / 2) * 100) for one, other in (before, after))
    return fit // 2 + (50 + int((50 + now - was) / 2) if taste.by_change else now)
