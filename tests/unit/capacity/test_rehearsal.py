"""Rehearsals put pods where a scheduler puts them that looks at all nodes for each of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.capacity.rehearsal import Balance, Part, Rehearsal
from federation.model.arrays import IntArray
from federation.model.pools.values import Cells, cells_of_nodes

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
    balance=st.sampled_from(Balance),
)
def test_pods_go_where_they_may_go_one_by_one(
    rows: list[tuple[tuple[int, int, int, int], int, bool]],
    request: dict[str, int],
    replicas: int,
    balance: Balance,
) -> None:
    stage = stage_of(rows, balance)
    part = Part(request, np.array([True, False]), replicas)
    placed = stage.placing(part)
    assert placed is not None
    after = stage.after(part, placed)
    late = int(after.late_l[0])
    assert late == max(0, replicas - int(stage.room_l(part)[0]))
    assert (after.free_rk >= 0).all()
    pods_k = np.zeros(len(rows), dtype=np.int64)
    pods_k[placed.cell_d] = placed.pods_d
    assert int(pods_k.sum()) == replicas - late
    # Each of them is the next of some node whose score no other's exceeds: with luck on its side.
    so_far_k = np.zeros_like(pods_k)
    for _ in range(replicas - late):
        scores = scores_of(stage, so_far_k, part, balance)
        best = [k for k in scores if scores[k] == max(scores.values()) and so_far_k[k] < pods_k[k]]
        assert best
        so_far_k[best[0]] += 1


@pytest.mark.parametrize("balance", Balance)
@pytest.mark.parametrize("replicas", [1, 5, 7, 8, 20])
def test_alike_nodes_are_one_cell(balance: Balance, replicas: int) -> None:
    row = ((8, 8, 1, 2), 5, True), ((4, 8, 0, 3), 6, True)
    apart = stage_of([row[0]] * 4 + [row[1]] * 3, balance)
    both = stage_of(list(row), balance)
    together = replace(both, count_k=np.array([4, 3]))
    part = Part({"cpu": 1000, "memory": 700 * MIB}, np.array([True]), replicas)
    one, other = apart.with_pods(part), together.with_pods(part)
    assert one is not None
    assert other is not None
    assert int(other.count_k.sum()) == 7
    assert one.late_l == other.late_l
    assert taken(apart, one) == taken(together, other)


def test_runs_differ_in_luck_alone() -> None:
    rows = [((8, 8, 1, 2), 5, True)] * 6
    runs = Rehearsal.of(*cells_of(rows), (Balance.CHANGE,) * 8)
    part = Part({"cpu": 1000}, np.array([True]), 3)
    after = runs.with_pods(part)
    assert after is not None
    assert (after.late_l == 0).all()
    chosen = [frozenset(np.flatnonzero(pods_of(after, run))) for run in range(8)]
    assert {len(each) for each in chosen} == {3}
    assert len(set(chosen)) > 1
    again = runs.with_pods(part)
    assert again is not None
    assert np.array_equal(after.free_rk, again.free_rk)


def test_what_nobody_has_is_late() -> None:
    stage = stage_of([((8, 8, 0, 0), 5, True)])
    after = stage.with_pods(Part({"nvidia.com/gpu": 1}, np.array([True]), 2))
    assert after is not None
    assert after.late_l.tolist() == [2]


def test_what_does_not_go_together_is_put_somewhere() -> None:
    stage = stage_of([((8, 8, 0, 0), 5, True)])
    odd = replace(stage, allocatable_sk=np.array([[0], [1]]))
    assert odd.with_pods(Part({"cpu": 1000}, np.array([True]), 3)) is not None
    endless = replace(stage, free_rk=np.full((3, 1), 10**15))
    assert endless.with_pods(Part({"cpu": 1}, np.array([True]), 10**7)) is None


@pytest.mark.parametrize(("full_cells", "parts"), [(0, 190), (1500, 150), (24_000, 35)])
def test_cells_that_take_no_pod_are_steps_too(full_cells: int, parts: int) -> None:
    """As every part goes over all of them: so that large full clusters take no longer."""
    stage = stage_of([((8, 8, 0, 0), 250, True)])
    empty_rk = np.zeros((len(RESOURCES), full_cells), dtype=np.int64)
    full_k = np.zeros(full_cells, dtype=np.int32)
    stage = replace(
        stage,
        run_k=np.append(stage.run_k, full_k),
        origin_k=np.append(stage.origin_k, full_k),
        pool_k=np.append(stage.pool_k, full_k),
        count_k=np.append(stage.count_k, full_k + 1),
        free_rk=np.column_stack([stage.free_rk, empty_rk]),
        allocatable_sk=np.column_stack([stage.allocatable_sk, empty_rk[:2]]),
    )
    part, rehearsed = Part({"cpu": 10}, np.array([True]), 1), 0
    after = stage.with_pods(part)
    while after is not None and rehearsed < 200:
        after, rehearsed = after.with_pods(part), rehearsed + 1
    assert parts <= rehearsed < parts * 5 // 4


def pods_of(stage: Rehearsal, run: int) -> IntArray:
    """How many pod slots each node of the report has less than five."""
    (here,) = np.nonzero(stage.run_k == run)
    pods_n = np.zeros(6, dtype=np.int64)
    pods_n[stage.origin_k[here]] = 5 - stage.free_rk[RESOURCES.index("pods"), here]
    return pods_n


def taken(before: Rehearsal, after: Rehearsal) -> list[int]:
    """What the pods took of all nodes together."""
    had_r = (before.free_rk * before.count_k).sum(axis=1)
    return [int(each) for each in had_r - (after.free_rk * after.count_k).sum(axis=1)]


def stage_of(
    rows: list[tuple[tuple[int, int, int, int], int, bool]], balance: Balance = Balance.CHANGE
) -> Rehearsal:
    return Rehearsal.of(*cells_of(rows), (balance,))


def cells_of(
    rows: list[tuple[tuple[int, int, int, int], int, bool]],
) -> tuple[Cells, IntArray]:
    """Of each node cores, gibibytes, what is taken of both, free slots, and whether it suits."""
    total_sk = np.array(
        [[c * 1000 for (c, *_), _, _ in rows], [m * 1024 * MIB for (_, m, *_), *_ in rows]]
    )
    taken_sk = np.array(
        [[t * 500 for (_, _, t, _), *_ in rows], [t * 512 * MIB for (*_, t), *_ in rows]]
    )
    free_sk = np.maximum(total_sk - taken_sk, 0)
    slots = np.array([[slots for _, slots, _ in rows]])
    pool_k = np.array([0 if suits else 1 for *_, suits in rows], dtype=np.int32)
    return cells_of_nodes(RESOURCES, pool_k, np.vstack([free_sk, slots])), total_sk


def scores_of(stage: Rehearsal, so_far_k: IntArray, part: Part, balance: Balance) -> dict[int, int]:
    """Of all nodes that take one more pod beside so many of them, by their number."""
    asked_r = np.array([part.request.get("cpu", 0), part.request.get("memory", 0), 1])
    return {
        k: score(stage, k, int(so_far_k[k]), part, balance)
        for k in range(len(stage.count_k))
        if part.suiting_p[stage.pool_k[k]]
        and (stage.free_rk[:, k] >= asked_r * (so_far_k[k] + 1)).all()
    }


def score(stage: Rehearsal, k: int, so_far: int, part: Part, balance: Balance) -> int:
    """As kube-scheduler reckons it, in Python's whole numbers but for the balance."""
    fit, before, after = 0, [], []
    for place, name in enumerate(("cpu", "memory")):
        total = int(stage.allocatable_sk[place, k])
        asked = part.request.get(name, 0)
        free = int(stage.free_rk[place, k]) - so_far * asked
        # Defaults for what is not asked for add up as well, in this score alone.
        left = max(free - (asked or UNASKED[name] * (so_far + 1)), 0)
        fit += left * 100 // total
        before.append(min((total - free) / total, 1.0))
        after.append(min((total - free + asked) / total, 1.0))
    was, now = (int((1 - abs(one - other) / 2) * 100) for one, other in (before, after))
    match balance:
        case Balance.CHANGE:
            return fit // 2 + 50 + int((50 + now - was) / 2)
        case Balance.DEVIATION:
            return fit // 2 + now
        case Balance.DIFFERENCE:
            return fit // 2 + (0 if max(after) >= 1 else int((1 - abs(after[0] - after[1])) * 100))
