"""The race for promised room: a node of eight cores, four of them promised to one pod by plan.

Eight pods of others come at once, and the promised one so much later. Run as a program it goes
through many spacings and exits with 1 when a promised pod was left without a node.
"""

from __future__ import annotations

import argparse
import sys

from estimator.nodes import Node
from federation.model.resources import CPU, MEMORY, PODS
from lab.truth.extended_cluster import ExtendedCluster, Loop, pod, promised_pod
from lab.truth.kube_scheduler import Delays

BINDING = "shop/web"
DELAYS = Delays(cycle=0.003, bind=0.2)
LATE_SECONDS = 0.15
LONGEST_SPACING_SECONDS = 0.5
FOREIGN = 8
PATIENT_SECONDS = 60.0


def cluster(loop: Loop, nodes: int, seed: int) -> ExtendedCluster:
    """Nodes of eight cores; the agent sees what happens with a delay."""
    members = [
        Node(name=f"n{number}", allocatable={CPU: 8000, MEMORY: 64 << 30, PODS: 110})
        for number in range(nodes)
    ]
    return ExtendedCluster(loop, members, seed=seed, late=LATE_SECONDS, delays=DELAYS)


def run_once(loop: Loop, seed: int, spacing_seconds: float) -> tuple[bool, int]:
    """Whether the promised pod got a node, and how many of the others did."""
    with cluster(loop, 1, seed) as race:
        assert race.promise(BINDING, {CPU: 4000}, 1).claimed
        for number in range(FOREIGN):
            race.create(pod(f"f{number}", "1"))
        race.timeline.run(spacing_seconds)
        race.create(promised_pod("p", BINDING, "4"))
        race.timeline.run(PATIENT_SECONDS)
        is_bound = "uid-p" in race.bound
        return is_bound, len(race.bound) - is_bound


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.truth.race", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    rounds: int = parser.parse_args().rounds
    with Loop() as loop:
        found = [
            run_once(loop, number, LONGEST_SPACING_SECONDS * number / max(rounds - 1, 1))
            for number in range(rounds)
        ]
    pending = sum(not is_bound for is_bound, _ in found)
    others = sum(bound for _, bound in found)
    print(f"{rounds} rounds: {pending} promised pods pending, {others / rounds:.2f} others bound")
    return 1 if pending else 0


if __name__ == "__main__":
    sys.exit(main())
