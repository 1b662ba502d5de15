"""Many runs at once choose nodes as the simulated kube-scheduler does."""

from __future__ import annotations

import numpy as np

from lab.truth.odds import ManyRuns
from lab.truth.plans import asked_of
from lab.truth.streams import Stream, Wanted, free_rn, nodes_of, stream
from tests.truth.test_careful_bursts import MEMBER, scheduler_of

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
