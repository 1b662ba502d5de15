"""What makes a binding meaningless, with the path of the field."""

from __future__ import annotations

import pytest

from federation.model.cluster import TaintEffect
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    ClusterLimit,
    EvictionTask,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
    StaticWeight,
)
from federation.model.workload import (
    Component,
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    ReplicaRequirements,
    Requirement,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.validation import violations_of

DIVIDED = SchedulingType.DIVIDED
ANY = ClusterAffinity()
IN_PARTS = Placement(partial=True, replica_scheduling=ReplicaScheduling(type=DIVIDED))
NOT_A_NUMBER = Requirement(key="cores", operator=Operator.GT, values=("many",))


def placed(placement: Placement) -> Binding:
    return Binding(name="web", placement=placement)


def scheduling(value: ReplicaScheduling) -> Binding:
    return placed(Placement(replica_scheduling=value))


def spread(*constraints: SpreadConstraint) -> Binding:
    return placed(Placement(spread_constraints=constraints))


def fields(requirement: Requirement) -> Binding:
    return placed(Placement(affinity=ClusterAffinity(match_fields=(requirement,))))


def claiming(claim: NodeClaim) -> Binding:
    return Binding(name="web", requirements=ReplicaRequirements(node_claim=claim))


REGION = SpreadConstraint(by=SpreadField.REGION)
GROUP = AffinityGroup(name="near", affinity=ANY)

CASES = {
    "spec.replicas: must not be negative": Binding(name="web", replicas=-1),
    "spec.replicas: must be at most 2147483647": Binding(name="web", replicas=2**31),
    "spec.replicaRequirements.resourceRequest[cpu]: must not be negative": Binding(
        name="web", requirements=ReplicaRequirements(request={"cpu": -1})
    ),
    "spec.replicaRequirements.nodeClaim.hardNodeAffinity.nodeSelectorTerms[0]"
    ".matchExpressions[0].values: must be one integer for Gt": claiming(
        NodeClaim(required_terms=(NodeSelectorTerm(match_expressions=(NOT_A_NUMBER,)),))
    ),
    "spec.replicaRequirements.nodeClaim.tolerations[0].operator: must be Exists when key is"
    " empty": claiming(NodeClaim(tolerations=(Toleration(),))),
    "spec.components[1].name: 'a' is already used by components[0]": Binding(
        name="web", components=(Component(name="a", replicas=1), Component(name="a", replicas=1))
    ),
    "spec.components[0].name: is required": Binding(
        name="web", components=(Component(name="", replicas=1),)
    ),
    "spec.components[0].replicas: must not be negative": Binding(
        name="web", components=(Component(name="a", replicas=-1),)
    ),
    "spec.clusters[1].name: 'c' is already used by clusters[0]": Binding(
        name="web", clusters=(TargetCluster(name="c"), TargetCluster(name="c"))
    ),
    "spec.clusters[0].replicas: must not be negative": Binding(
        name="web", clusters=(TargetCluster(name="c", replicas=-3),)
    ),
    "spec.placement.clusterAffinity: cannot be used together with clusterAffinities": placed(
        Placement(affinity=ANY, affinity_groups=(GROUP,))
    ),
    "spec.placement.clusterAffinities[1].affinityName: 'near' is already used by"
    " clusterAffinities[0]": placed(Placement(affinity_groups=(GROUP, GROUP))),
    "spec.placement.clusterAffinities[0].affinityName: is required": placed(
        Placement(affinity_groups=(AffinityGroup(name="", affinity=ANY),))
    ),
    "spec.placement.clusterAffinities[0].overflowAffinities[0].labelSelector.matchExpressions[0]"
    ".values: must be one integer for Gt": placed(
        Placement(
            affinity_groups=(
                AffinityGroup(
                    name="near",
                    affinity=ANY,
                    overflow=(ClusterAffinity(match_expressions=(NOT_A_NUMBER,)),),
                ),
            )
        )
    ),
    "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].key: must be one of"
    " provider, region, zone": fields(Requirement(key="country", operator=Operator.EXISTS)),
    "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].values: must not be empty"
    " for In": fields(Requirement(key="zone", operator=Operator.IN)),
    "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].values: must be empty for"
    " Exists": fields(Requirement(key="zone", operator=Operator.EXISTS, values=("z",))),
    "spec.placement.clusterTolerations[0].value: must be empty for Exists": placed(
        Placement(tolerations=(Toleration(key="k", operator=TolerationOperator.EXISTS, value="v"),))
    ),
    "spec.placement.clusterTolerations[0].effect: must be NoExecute when tolerationSeconds is"
    " set": placed(
        Placement(
            tolerations=(
                Toleration(
                    key="k", value="v", effect=TaintEffect.NO_SCHEDULE, toleration_seconds=3
                ),
            )
        )
    ),
    "spec.placement.spreadConstraints[0].minGroups: must be at most maxGroups, which is 2": spread(
        SpreadConstraint(by=SpreadField.REGION, min_groups=3, max_groups=2)
    ),
    "spec.placement.spreadConstraints[0].maxGroups: must be at least 1, or left out for no"
    " limit": spread(SpreadConstraint(by=SpreadField.REGION, min_groups=0, max_groups=0)),
    "spec.placement.spreadConstraints[1].spreadByField: 'region' is already used by"
    " spreadConstraints[0]": spread(REGION, REGION),
    "spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight: must not be"
    " negative": scheduling(
        ReplicaScheduling(type=DIVIDED, static_weights=(StaticWeight(target=ANY, weight=-1),))
    ),
    "spec.placement.replicaScheduling.clusterLimits: needs replicaSchedulingType"
    " Divided": scheduling(ReplicaScheduling(limits=(ClusterLimit(target=ANY),))),
    "spec.placement.replicaScheduling.clusterLimits[0].min: must be at most max, which is"
    " 2": scheduling(
        ReplicaScheduling(type=DIVIDED, limits=(ClusterLimit(target=ANY, min=3, max=2),))
    ),
    "spec.placement.replicaScheduling.clusterLimits[0].max: must not be negative": scheduling(
        ReplicaScheduling(type=DIVIDED, limits=(ClusterLimit(target=ANY, min=-9, max=-2),))
    ),
    "spec.gracefulEvictionTasks[0].replicas: must not be negative": Binding(
        name="web", eviction_tasks=(EvictionTask(from_cluster="c", replicas=-1),)
    ),
    "spec.leaseSeconds: must be at least 1": Binding(name="web", lease_seconds=0),
    "spec.minAvailable: needs placement.partial: else all are placed, or none": Binding(
        name="web", replicas=3, min_available=2
    ),
    "spec.minAvailable: needs replicaSchedulingType Divided": Binding(
        name="web", replicas=3, min_available=2, placement=Placement(partial=True)
    ),
    "spec.minAvailable: must be from 1 to replicas, which is 3, not 4": Binding(
        name="web", replicas=3, min_available=4, placement=IN_PARTS
    ),
    "spec.minAvailable: cannot be used with components: they go in whole sets": Binding(
        name="web",
        components=(Component(name="leader", replicas=1),),
        min_available=1,
        placement=IN_PARTS,
    ),
}


@pytest.mark.parametrize("violation", CASES)
def test_violation(violation: str) -> None:
    assert violation in map(str, violations_of(CASES[violation]))


def test_a_floor_cannot_be_kept_across_tiers() -> None:
    binding = placed(
        Placement(
            affinity_groups=(AffinityGroup(name="near", affinity=ANY, overflow=(ANY,)),),
            replica_scheduling=ReplicaScheduling(
                type=DIVIDED, limits=(ClusterLimit(target=ANY, min=1),)
            ),
        )
    )
    (violation,) = violations_of(binding)
    assert violation.field == "spec.placement.replicaScheduling.clusterLimits[0].min"


def test_all_violations_at_once_in_the_order_of_the_fields() -> None:
    binding = Binding(
        name="web",
        replicas=-1,
        placement=Placement(
            spread_constraints=(SpreadConstraint(by=SpreadField.ZONE, max_groups=0),)
        ),
    )
    assert [violation.field for violation in violations_of(binding)] == [
        "spec.replicas",
        "spec.placement.spreadConstraints[0].maxGroups",
    ]


def test_a_sound_binding() -> None:
    binding = Binding(
        name="web",
        replicas=2**31 - 1,
        requirements=ReplicaRequirements(request={"cpu": 500}),
        placement=Placement(
            affinity=ClusterAffinity(
                match_fields=(Requirement(key="zone", operator=Operator.IN, values=("z",)),),
                match_expressions=(Requirement(key="n", operator=Operator.LT, values=("-3",)),),
            ),
            spread_constraints=(REGION, SpreadConstraint(by=SpreadField.CLUSTER, max_groups=3)),
            replica_scheduling=ReplicaScheduling(
                type=DIVIDED, limits=(ClusterLimit(target=ANY, min=1, max=1),)
            ),
        ),
    )
    assert violations_of(binding) == []


def test_what_is_wrong_is_told_of_every_binding_that_has_it() -> None:
    unsound = ReplicaRequirements(request={"cpu": -1})
    placement = Placement(spread_constraints=(SpreadConstraint(by=SpreadField.ZONE, max_groups=0),))
    for name in ("one", "other"):
        binding = Binding(name=name, requirements=unsound, placement=placement)
        assert [violation.field for violation in violations_of(binding)] == [
            "spec.replicaRequirements.resourceRequest[cpu]",
            "spec.placement.spreadConstraints[0].maxGroups",
        ]
