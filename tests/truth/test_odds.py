"""The odds of a pending pod, and many runs at once held to the simulated kube-scheduler.

Seeds choose clusters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lab.truth.odds import ManyRuns, best_division, found_by_oracle, refusals_of
from lab.truth.plans import Line, Plan, asked_of
from lab.truth.streams import Stream, Wanted, free_rn, nodes_of, stream
from tests.truth.test_virtual import MEMBER, scheduler_of

NODES, BINDINGS = 20, 40


def test_the_scheduler_chooses_among_the_nodes_that_are_best_here() -> None:
    nodes = nodes_of(MEMBER, NODES, 3)
    places = {node.name: place for place, node in enumerate(nodes)}
    scheduler = scheduler_of(nodes, 3)
    pods: dict[str, Wanted] = {}
    for wanted in stream(Stream.PLAIN, 3, BINDINGS, nodes):
        for number in range(wanted.replicas):
            pod = wanted.pod(number, "decision", "default-scheduler")
            pods[pod["metadata"]["uid"]] = wanted
            scheduler.put_pod(pod)
    scheduler.timeline.run(60.0)
    runs = ManyRuns(nodes, free_rn(nodes), 1, 1)
    first_attempts = {each.pod: each for each in reversed(scheduler.attempts)}
    late = 0
    for uid, wanted in pods.items():
        node = first_attempts[uid].node
        (best,) = runs.best(wanted)
        if node:
            assert places[node] in best
            runs.put(wanted, places[node])
        else:
            assert not best
            late += 1
    assert 0 < late < len(pods)


def test_pods_take_room_and_those_without_any_are_late() -> None:
    nodes = nodes_of(MEMBER, NODES, 4)
    wanted = stream(Stream.PLAIN, 4, BINDINGS, nodes)[0]
    runs = ManyRuns(nodes, free_rn(nodes), 3, 1)
    (room,) = set(runs.room_l(wanted).tolist())
    runs.place(wanted, room + 2)
    np.testing.assert_array_equal(runs.late_l, [2, 2, 2])
    np.testing.assert_array_equal(runs.room_l(wanted), [0, 0, 0])
    assert asked_of(wanted).min() > 0


SMALL = Plan(line=Line.CAREFUL, seed=1, bindings=40, nodes=(9, 10))
RUNS = 20


def test_replicas_are_divided_so_that_they_fit_where_that_is_possible() -> None:
    members = [nodes_of(name, 8, 1) for name in ("member1", "member2")]
    wanted = stream(Stream.PLAIN, 1, 1, [node for nodes in members for node in nodes])[0]
    ahead = [ManyRuns(nodes, free_rn(nodes), RUNS, 1) for nodes in members]
    room = [int(runs.room_l(wanted)[0]) for runs in ahead]
    for replicas in (1, sum(room)):
        odds, division = best_division(replace(wanted, replicas=replicas), ahead)
        assert odds == 0.0
        assert sum(division) == replicas
        assert all(part <= most for part, most in zip(division, room, strict=True))
    odds, _ = best_division(replace(wanted, replicas=sum(room) + 1), ahead)
    assert odds == 1.0


@pytest.mark.parametrize("allowed", [0.0, 1.0])
def test_an_oracle_loses_what_it_may_and_no_more(allowed: float) -> None:
    found = found_by_oracle(SMALL, RUNS, allowed)
    assert found.promised > 0
    assert bool(found.pending) is bool(allowed)


def test_as_many_refused_bindings_had_fitted_as_the_study_says() -> None:
    found, refusals = refusals_of(SMALL, RUNS)
    assert len(refusals) == found.refused > 0
    assert sum(each.had_fitted for each in refusals) == found.fitted
    assert {0.0 <= each.odds <= 1.0 for each in refusals} == {True}
