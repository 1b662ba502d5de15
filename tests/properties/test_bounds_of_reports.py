"""What the control plane says of reported pools against the agent's own count of the same nodes.

Clusters as API servers show them: filled, tainted, cordoned, not ready; shapes with selectors,
affinity and tolerations of all that keeps pods away.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec

from estimator.estimation.capacity import NodeSet
from estimator.estimation.pooling import USUAL_LABEL_KEYS, Pooling
from estimator.kube.dump import read_dump
from estimator.watched_cluster import WatchedCluster
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.model.cluster import CapacityReport, Cluster, ClusterState, TaintEffect
from federation.model.estimate import Bound, EstimateOptions, Source
from federation.model.grades import ResourceModel
from federation.model.reported_pools import pools_of
from federation.model.workload import (
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    ReplicaRequirements,
    Requirement,
    Toleration,
    TolerationOperator,
)
from federation.services.fleet.known_estimates import KnownEstimates
from lab.packed_clusters import MIB
from lab.truth.streams import CPU, MEMORY, POOL_LABEL, ZONE_LABEL, documents_of, nodes_of

CLUSTERS, SHAPES = 40, 10
BUDGETS = (16, 32, 256)
EXISTS = TolerationOperator.EXISTS
TOLERATIONS = (
    Toleration(key="node.kubernetes.io/unschedulable", operator=EXISTS),
    Toleration(
        key="node.kubernetes.io/unschedulable",
        operator=EXISTS,
        effect=TaintEffect.NO_SCHEDULE,
    ),
    Toleration(key="node.kubernetes.io/not-ready", operator=EXISTS),
    Toleration(key="node.kubernetes.io/unreachable", operator=EXISTS),
    Toleration(operator=EXISTS),
    Toleration(key=POOL_LABEL, value="spot"),
    Toleration(key=POOL_LABEL, operator=EXISTS),
)


def cluster_of(choices: random.Random, number: int) -> WatchedCluster:
    """Some nodes cordoned, some not ready, some none of them."""
    nodes = nodes_of(f"member{number}", choices.choice([3, 12, 60]), seed=number)
    harm = choices.choice([0.0, 0.1, 0.5])
    items: list[dict[str, Any]] = []
    for document in documents_of(nodes):
        if document["kind"] == "Node" and choices.random() < harm:
            how = choices.choice(["cordoned", "False", "Unknown"])
            if how == "cordoned":
                document["spec"]["unschedulable"] = True
            else:
                document["status"]["conditions"] = [{"type": "Ready", "status": how}]
        items.append(document)
    content = {"kind": "List", "apiVersion": "v1", "items": items}
    dump = read_dump(msgspec.json.encode(content))
    cluster = WatchedCluster(NodeSet.SCHEDULABLE)
    cluster.pool_by(Pooling(choices.choice(BUDGETS), (POOL_LABEL, *USUAL_LABEL_KEYS)))
    cluster.cache.replace_nodes(dump.nodes)
    cluster.cache.replace_pods(dump.pods)
    return cluster


def shape_of(choices: random.Random) -> ReplicaRequirements:
    request = {CPU: choices.choice([50, 333, 1000, 4000]), MEMORY: choices.randint(64, 9000) * MIB}
    selector, terms = {}, None
    if choices.random() < 0.3:
        selector = {ZONE_LABEL: choices.choice("abc")}
    if choices.random() < 0.3:
        operator = choices.choice([Operator.IN, Operator.NOT_IN])
        expression = Requirement(key=POOL_LABEL, operator=operator, values=("spot", "general"))
        terms = (NodeSelectorTerm(match_expressions=(expression,)),)
    tolerations = tuple(choices.sample(TOLERATIONS, choices.choice([0, 1, 1, 2])))
    claim = NodeClaim(node_selector=selector, required_terms=terms, tolerations=tolerations)
    return ReplicaRequirements(request=request, node_claim=claim)


def test_no_lower_bound_is_above_and_no_upper_bound_below_what_fits() -> None:
    choices = random.Random(13)
    seen: Counter[str] = Counter()
    for number in range(CLUSTERS):
        cluster = cluster_of(choices, number)
        counted = cluster.capacity(ResourceModel())
        assert counted.pools is not None
        report = CapacityReport(
            epoch=1,
            sequence=1,
            snapshot_time=0.0,
            summary=counted.summary,
            nodes=counted.nodes,
        )
        capacity = FleetCapacity.of([ClusterState(cluster=Cluster(name="m"), report=report)])
        cells, known = FleetCells.of([pools_of(counted.pools)]), KnownEstimates()
        for _ in range(SHAPES):
            shape = shape_of(choices)
            truth = cluster.exact().replicas(shape)
            told = known.estimates(capacity, cells, shape, EstimateOptions())
            assert told.upper_c is not None
            if told.source_c[0] != Source.POOLS:
                seen["unknown"] += 1
                assert told.upper_c[0] < 0
                continue
            lower, upper = int(told.replicas_c[0]), int(told.upper_c[0])
            assert lower <= truth
            assert upper < 0 or truth <= upper
            if told.bound_c[0] == Bound.EXACT:
                assert lower == truth
            seen["exact"] += told.bound_c[0] == Bound.EXACT
            seen["open above"] += upper < 0
            seen["bounded above"] += upper >= 0
    # All kinds of answers are among the cases.
    assert seen.total() - seen["exact"] == CLUSTERS * SHAPES
    assert min(seen["exact"], seen["open above"], seen["bounded above"]) > 30
