"""Columns of outstanding promises equal the loop over the clusters, whatever changed before."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from federation.capacity.assignments import Assignment, Held
from federation.capacity.promise_sums import PromiseSums
from federation.model.positions import Moves
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements

REQUESTS = ({"cpu": 500}, {"cpu": 1000}, {"cpu": 500, "memory": 1})
SHAPES = tuple(map(request_shape, REQUESTS))

assignments = st.builds(
    lambda request, replicas, certificate, unplaced: Assignment(
        outstanding=Outstanding(
            binding=f"shop/web-{replicas}",
            requirements=ReplicaRequirements(request=request),
            in_cells=replicas,
            certificate=certificate,
        ),
        unplaced=min(unplaced, replicas),
    ),
    st.sampled_from(REQUESTS),
    st.integers(0, 5),
    st.sampled_from(PromiseCertificate),
    st.sampled_from([0, 0, 1, 3]),
)
outstanding = st.none() | st.lists(assignments, max_size=4).map(Held().with_more)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Held | None], PromiseSums]:
    """Draw a fleet after some changes: what each cluster holds, and the columns of all."""
    held: list[Held | None] = [None] * draw(st.integers(0, 4))
    sums = PromiseSums.none(len(held))
    for _ in range(draw(st.integers(1, 5))):
        if held and draw(st.booleans()):
            changed = draw(st.dictionaries(st.integers(0, len(held) - 1), outstanding, max_size=3))
            for position, value in changed.items():
                held[position] = value
            sums = sums.with_clusters(changed)
            continue
        gone = draw(st.sets(st.integers(0, len(held) - 1), max_size=2)) if held else set()
        remaining = len(held) - len(gone)
        taken = draw(st.sets(st.integers(0, remaining), max_size=1))
        moves = Moves(removed=sorted(gone), added=sorted(taken))
        held = list(moves.items(held, [None] * len(taken)))
        sums = sums.after(moves)
    return held, sums


@given(fleets())
def test_columns_equal_the_loop_over_clusters(fleet: tuple[list[Held | None], PromiseSums]) -> None:
    clusters, sums = fleet
    held = [cluster or Held() for cluster in clusters]
    assert sums.replicas_c.tolist() == [cluster.replicas for cluster in held]
    assert sums.strict_c.tolist() == [cluster.is_strict for cluster in held]
    assert sums.late_c.tolist() == [cluster.late for cluster in held]
    assert sums.overcommitted_c.tolist() == [cluster.late > 0 for cluster in held]
    assert sums.reserve_c.tolist() == [cluster.reserve for cluster in held]
    for shape in SHAPES:
        expected = [cluster.on_their_way(shape) for cluster in held]
        assert sums.on_their_way_c(shape).tolist() == expected
    assert sums.stuck == {
        position: tuple(promise for promise in cluster.every if promise.is_broken)
        for position, cluster in enumerate(held)
        if cluster.is_overcommitted
    }
    assert {column.dtype for column in (sums.replicas_c, sums.late_c)} == {np.dtype(np.int64)}
