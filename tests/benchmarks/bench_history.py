"""What keeping and replaying decisions costs: bytes of each, CPU to pack it, CPU to replay it.

Prints figures beside their goals; must not judge them. What it costs decisions a second,
``python -m tools.bench_against`` shows.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from federation.model.workload import TargetCluster
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, DEFAULT_PROFILES
from federation.scheduler.replay import DecisionInputs
from federation.scheduler.state import Surroundings
from federation.services.packed_inputs import SharedBodies
from federation.services.packed_traces import Recorded, packed_traces
from federation.services.values import ReportEvidence, Verdict
from tests.benchmarks import bench_scheduler
from tests.benchmarks.measuring import chosen, median_millis

DECISIONS = chosen(100, quick=20)
GOALS = {100: 4096, 1000: 25_600}


def verdicts(clusters: int) -> list[Verdict]:
    """As of a storm: most decisions are about another binding, on estimates that are alike."""
    chance = np.random.default_rng(5)
    fleet, known = bench_scheduler.fleet(clusters), bench_scheduler.availability(clusters)
    evidence = ReportEvidence(
        sequences=tuple(chance.integers(1, 5000, clusters).tolist()),
        age_seconds=tuple(chance.random(clusters).round(3).tolist()),
    )
    made = []
    for number in range(DECISIONS):
        wanted = replace(
            bench_scheduler.binding(5 + number % 90, ()),
            name=f"web-{number}",
            uid=f"0195a4f2-0000-4000-8000-{number:012}",
            clusters=(TargetCluster(name=f"member{number % clusters:05d}", replicas=3),),
        )
        taken_c = chance.integers(0, 20, clusters)
        inputs = DecisionInputs(
            binding=wanted,
            fleet=fleet,
            profile=DEFAULT_PROFILE,
            surroundings=Surroundings(triggers=("replicas changed",)),
        )
        decision = inputs.decide(replace(known, replicas_c=known.replicas_c - taken_c), 1e9 + 0.25)
        made.append(Verdict(decision=decision, evidence=evidence, inputs=inputs))
    return made


def measure(clusters: int) -> None:
    made = verdicts(clusters)
    bare = [replace(each, inputs=None) for each in made]
    packed = packed_traces(made)
    kept = statistics.median(len(each.body) for each in packed)
    without = statistics.median(len(each.body) for each in packed_traces(bare))
    shared = {each.name: each for one in packed for each in one.shared}.values()
    decide, pack, pack_bare, replay = (
        1000 * milliseconds / DECISIONS
        for milliseconds in (
            median_millis(lambda: verdicts(clusters), 3),
            median_millis(lambda: packed_traces(made), 9),
            median_millis(lambda: packed_traces(bare), 9),
            median_millis(lambda: replay_all(made, shared), 3),
        )
    )
    goal = GOALS[clusters]
    print(f"{DECISIONS} decisions of {clusters} clusters")
    print(
        f"  kept of each           {kept:8.0f} bytes, {kept - without:.0f} of them for replays   "
        f"goal <= {goal}: {'kept' if kept <= goal else 'MISSED'}"
    )
    print(f"  kept once              {sum(map(size_of, shared)):8} bytes: fleet and profile")
    print(
        f"  to pack each           {pack:8.0f} us of CPU, {pack - pack_bare:.0f} of them for "
        f"replays; to decide it took {decide:.0f}"
    )
    print(f"  to replay each         {replay:8.0f} us of CPU")


def size_of(shared: SharedBodies) -> int:
    return sum(map(len, shared.bodies.values()))


def replay_all(made: Sequence[Verdict], shared: Sequence[SharedBodies]) -> None:
    bodies = {name: body for each in shared for name, body in each.bodies.items()}
    for verdict, packed in zip(made, packed_traces(made), strict=True):
        decision = verdict.decision
        replay = Recorded(
            outcome=decision.outcome,
            clusters=decision.clusters,
            remainder=decision.remainder,
            reason=decision.reason,
            trace=packed.body,
            bodies=bodies,
        ).replayed(DEFAULT_PROFILES)
        assert replay.difference is None, replay


if __name__ == "__main__":
    for clusters in GOALS:
        measure(clusters)
