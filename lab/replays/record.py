"""Records the corpus of decisions that must replay equal.

    python -m lab.replays.record

To be run again only where ALGORITHM_REVISION is raised; the CHANGELOG says what moves then. Must
not look at what is decided.
"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import msgspec
import numpy as np

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    ClusterLimit,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
    StaticWeight,
    TieBreak,
)
from federation.model.pools.matching import untold_by_pools
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason, stored_reason
from federation.model.workload import (
    Component,
    ObjectReference,
    ReplicaRequirements,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.plugins.filters import CapacityArgs
from federation.scheduler.plugins.permits import GangArgs
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Filter, Permit, Profile, Score
from federation.scheduler.plugins.registry import IN_TREE
from federation.scheduler.promisable import without_room
from federation.scheduler.state import BindingContext
from federation.services.packed_traces import packed_traces
from federation.services.values import ReportEvidence, Verdict

CORPUS = Path(__file__).with_name("decisions.jsonl")
COUNT, FLEETS, CLUSTERS = 200, 4, 24
NAMES = [f"member{number:02}" for number in range(CLUSTERS)]
NO_EXECUTE = Taint(key="drain", effect=TaintEffect.NO_EXECUTE, time_added=900.0)
DIVIDED = SchedulingType.DIVIDED
GOLD = ClusterAffinity(match_labels={"tier": "gold"})
NOWHERE = ClusterAffinity(cluster_names=("gone",))
FIRST = ClusterAffinity(cluster_names=tuple(NAMES[:8]))
SCHEDULINGS = (
    ReplicaScheduling(),
    ReplicaScheduling(type=DIVIDED),
    ReplicaScheduling(type=DIVIDED, static_weights=(StaticWeight(target=GOLD, weight=3),)),
    ReplicaScheduling(type=DIVIDED, dynamic=True),
    ReplicaScheduling(type=DIVIDED, dynamic=True, limits=(ClusterLimit(target=GOLD, max=4),)),
    ReplicaScheduling(type=DIVIDED, capacity_bounded=True),
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED),
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.FILL_FIRST),
)
WEIGHED = Profile(
    name="weighed",
    filters=(
        *DEFAULT_PROFILE.filters,
        Filter(name="Capacity", run=IN_TREE["Capacity"].bound(CapacityArgs())),
    ),
    scores=tuple(
        Score(name=each.name, run=each.run, weight=weight)
        for weight, each in enumerate(DEFAULT_PROFILE.scores, start=1)
    ),
    permits=(Permit(name="Gang", run=IN_TREE["Gang"].bound(GangArgs(min_available_percent=60))),),
)


def fleet(chance: random.Random) -> Fleet:
    clusters = [
        Cluster(
            name=name,
            labels={"tier": chance.choice(["gold", "tin"]), "env": chance.choice("ab")},
            provider=chance.choice(["p1", "p2"]),
            region=chance.choice(["r1", "r2", "r3", ""]),
            zones=tuple(sorted(chance.sample(["z1", "z2", "z3"], chance.randint(0, 2)))),
            taints=chance.choice([(), (), (), (NO_EXECUTE,)]),
            ready=chance.random() < 0.95,
            cordoned=chance.random() < 0.05,
            api_enablements=chance.choice([None, frozenset({("apps/v1", "Deployment")})]),
        )
        for name in NAMES
    ]
    silent = [chance.choice(["", "", "", "", "is stale"]) for _ in NAMES]
    return Fleet.of(clusters).without(Column.of(map(stored_reason, silent)))


def binding(chance: random.Random, number: int) -> Binding:
    by = [*SpreadField]
    spread = tuple(
        SpreadConstraint(
            by=field, min_groups=chance.choice([1, 2]), max_groups=chance.choice([None, 2, 3])
        )
        for field in by[: chance.choice([0, 0, 1, 2])]
    )
    groups = (
        AffinityGroup(name="near", affinity=GOLD, overflow=(FIRST,)),
        AffinityGroup(name="far", affinity=ClusterAffinity(exclude=(NAMES[0],))),
    )
    placement = Placement(
        affinity=None if number % 3 else chance.choice([FIRST, FIRST, NOWHERE]),
        affinity_groups=groups if number % 3 == 1 else (),
        tolerations=chance.choice(
            [(), (Toleration(operator=TolerationOperator.EXISTS, toleration_seconds=200),)]
        ),
        spread_constraints=spread,
        replica_scheduling=chance.choice(SCHEDULINGS),
        partial=chance.random() < 0.6,
        tie_break=chance.choice([*TieBreak]),
    )
    parts = tuple(Component(name=name, replicas=2) for name in ("head", "worker"))
    return Binding(
        namespace="shop",
        name=f"web-{number}",
        resource=ObjectReference(api_version="apps/v1", kind="Deployment", uid=f"uid-{number}"),
        replicas=chance.choice([0, 1, 5, 30, 150]),
        requirements=ReplicaRequirements(request={"cpu": 500}),
        components=parts if chance.random() < 0.1 else (),
        clusters=tuple(
            TargetCluster(name=name, replicas=chance.randint(0, 5))
            for name in chance.sample([*NAMES, "gone"], chance.choice([0, 0, 2, 4]))
        ),
        placement=placement,
        fresh=chance.random() < 0.2,
    )


def verdict(chance: random.Random, number: int, fleets: list[Fleet]) -> Verdict:
    made_on = chance.choice(fleets)
    fits_c = np.array([chance.choice([0, 0, 1, 4, 9, 40]) for _ in NAMES], dtype=np.int64)
    known = Estimates(
        replicas_c=fits_c,
        source_c=np.where(fits_c == 9, Source.NONE, Source.POOLS).astype(np.int8),
        bound_c=np.full(CLUSTERS, Bound.LOWER, dtype=np.int8),
        reasons={0: untold_by_pools(("disk",))},
    )
    inputs = DecisionInputs(
        binding=binding(chance, number),
        fleet=made_on,
        profile=chance.choice([DEFAULT_PROFILE, WEIGHED]),
        surroundings=BindingContext(
            observed_affinity=chance.choice(["", "far"]),
            triggers=(Reason(ReasonCode.REPLICAS_CHANGED),),
        ),
    )
    decision = inputs.schedule(known, 1000.0 + number / 8)
    refused = {}
    if decision.clusters and chance.random() < 0.1:
        refused = {decision.clusters[0].name: stored_reason("its largest node has room for 2")}
        decision = without_room(decision, refused)
    return Verdict(decision=decision, evidence=ReportEvidence(), inputs=inputs, refused=refused)


def main() -> None:
    """Bodies first, a line each, then decisions."""
    chance = random.Random(20260301)
    fleets = [fleet(chance) for _ in range(FLEETS)]
    verdicts = [verdict(chance, number, fleets) for number in range(COUNT)]
    bodies: dict[bytes, bytes] = {}
    lines = []
    for each, packed in zip(verdicts, packed_traces(verdicts), strict=True):
        for shared in packed.shared:
            bodies |= shared.bodies
        decision = each.decision
        lines.append(
            {
                "outcome": decision.outcome,
                "clusters": msgspec.to_builtins(decision.clusters),
                "remainder": decision.remainder,
                "reason": str(decision.reason),
                "trace": text_of(packed.body),
            }
        )
    kept = [{"name": text_of(name), "body": text_of(body)} for name, body in bodies.items()]
    with CORPUS.open("w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(line)}\n" for line in (*kept, *lines))


def text_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


if __name__ == "__main__":
    main()
