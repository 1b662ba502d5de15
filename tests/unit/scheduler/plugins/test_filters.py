"""Filter plugins: who is refused, and who is not because the binding is there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    EvictionTask,
    Placement,
    SpreadConstraint,
    SpreadField,
)
from federation.model.workload import (
    ObjectReference,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.plugins.filters import FILTERS
from federation.scheduler.state import NO_CONTEXT, BindingContext
from tests.unit.scheduler.states import state_of

GPU = Taint(key="gpu", value="yes", effect=TaintEffect.NO_SCHEDULE)
SOFT = Taint(key="gpu", value="yes", effect=TaintEffect.PREFER_NO_SCHEDULE)
GONE = Taint(key="unreachable", effect=TaintEffect.NO_EXECUTE, time_added=900.0)


def refused(
    name: str,
    clusters: Sequence[Cluster],
    binding: Binding,
    *,
    fits: Mapping[str, int] | None = None,
    surroundings: BindingContext = NO_CONTEXT,
) -> dict[str, str]:
    state = state_of(clusters, binding, fits=fits, surroundings=surroundings)
    reasons: dict[str, str] = {}
    for refused_c, reason in FILTERS[name](state):
        for cluster, is_refused in zip(state.fleet.names, refused_c.tolist(), strict=True):
            if is_refused:
                reasons.setdefault(cluster, str(reason))
    return reasons


def placed_on(*names: str, placement: Placement | None = None) -> Binding:
    return Binding(
        name="web",
        resource=ObjectReference(api_version="apps/v1", kind="Deployment"),
        clusters=tuple(TargetCluster(name=name, replicas=0) for name in names),
        placement=placement or Placement(),
    )


def test_clusters_where_nothing_may_grow_keep_what_they_hold() -> None:
    clusters = [
        Cluster(name="a", cordoned=True),
        Cluster(name="b", cordoned=True, ready=False),
        Cluster(name="c", ready=False),
        Cluster(name="d"),
    ]
    unready = {"a": "is cordoned", "b": "is not Ready", "c": "is not Ready"}
    assert refused("ClusterReady", clusters, placed_on()) == unready
    assert refused("ClusterReady", clusters, placed_on("a", "c")) == {"b": "is not Ready"}


@pytest.mark.parametrize(
    ("taint", "tolerations", "is_refused"),
    [
        (GPU, (), True),
        (SOFT, (), False),
        (GPU, (Toleration(key="gpu", value="yes"),), False),
        (GPU, (Toleration(key="gpu", value="no"),), True),
        (GPU, (Toleration(operator=TolerationOperator.EXISTS),), False),
        (GPU, (Toleration(key="gpu", value="yes", effect=TaintEffect.NO_EXECUTE),), True),
    ],
)
def test_taints(taint: Taint, tolerations: tuple[Toleration, ...], is_refused: bool) -> None:
    clusters = [Cluster(name="a", taints=(taint,)), Cluster(name="b", taints=(taint,))]
    binding = placed_on("b", placement=Placement(tolerations=tolerations))
    reasons = {"a": "has the untolerated taint gpu=yes:NoSchedule"} if is_refused else {}
    assert refused("TaintToleration", clusters, binding) == reasons


@pytest.mark.parametrize(
    ("seconds", "added", "is_refused"),
    [(None, 900.0, False), (101, 900.0, False), (100, 900.0, True), (100, None, False)],
)
def test_toleration_seconds_run_from_when_the_taint_came(
    seconds: int | None, added: float | None, is_refused: bool
) -> None:
    taint = Taint(key="unreachable", effect=TaintEffect.NO_EXECUTE, time_added=added)
    tolerating = Toleration(
        key="unreachable", operator=TolerationOperator.EXISTS, toleration_seconds=seconds
    )
    binding = placed_on(placement=Placement(tolerations=(tolerating,)))
    reasons = refused("TaintToleration", [Cluster(name="a", taints=(taint,))], binding)
    assert bool(reasons) is is_refused


def test_the_untolerated_taint_is_named_even_behind_a_tolerated_one() -> None:
    binding = placed_on(placement=Placement(tolerations=(Toleration(key="gpu", value="yes"),)))
    reasons = refused("TaintToleration", [Cluster(name="a", taints=(GPU, GONE))], binding)
    assert reasons == {"a": "has the untolerated taint unreachable:NoExecute"}


def test_api_enablement() -> None:
    other = frozenset({("batch/v1", "Job")})
    clusters = [
        Cluster(name="a", api_enablements=other),
        Cluster(name="b", api_enablements=other),
        Cluster(name="c"),
        Cluster(name="d", api_enablements=other | {("apps/v1", "Deployment")}),
    ]
    reasons = refused("APIEnablement", clusters, placed_on("b"))
    assert reasons == {"a": "does not have the API apps/v1 Deployment"}
    assert not refused("APIEnablement", clusters, Binding(name="no kind stated"))


def test_spread_property() -> None:
    clusters = [
        Cluster(name="a", region="r", provider="p", zones=("z",)),
        Cluster(name="b", region="r"),
        Cluster(name="c", provider="p", zones=("z",)),
    ]
    wanted = {field: SpreadConstraint(by=field) for field in SpreadField}

    def lacking(field: SpreadField) -> dict[str, str]:
        placement = Placement(spread_constraints=(wanted[field],))
        return refused("SpreadConstraint", clusters, placed_on("b", "c", placement=placement))

    assert lacking(SpreadField.CLUSTER) == {}
    assert lacking(SpreadField.REGION) == {"c": "has no region"}
    assert lacking(SpreadField.PROVIDER) == {"b": "has no provider"}
    assert lacking(SpreadField.ZONE) == {"b": "has no zone"}


@pytest.mark.parametrize(
    ("name", "binding", "surroundings", "expected"),
    [
        # Affinity holds for clusters where it is placed, too.
        (
            "ClusterAffinity",
            placed_on("b", placement=Placement(affinity=ClusterAffinity(cluster_names=("a",)))),
            NO_CONTEXT,
            dict.fromkeys("bcd", "does not match the cluster affinity"),
        ),
        (
            "ClusterEviction",
            replace(
                placed_on("a"),
                eviction_tasks=(EvictionTask(from_cluster="a"), EvictionTask(from_cluster="gone")),
            ),
            NO_CONTEXT,
            {"a": "is being evicted"},
        ),
        # Where every peer is; a peer whose clusters are gone holds nobody back.
        (
            "WorkloadAffinity",
            placed_on("d"),
            BindingContext(affinity_peers=(frozenset("ab"), frozenset("bc"), frozenset(["gone"]))),
            dict.fromkeys("ac", "does not hold the workloads of its affinity group"),
        ),
        # Where no peer is.
        (
            "WorkloadAntiAffinity",
            placed_on("c"),
            BindingContext(anti_affinity_peers=(frozenset("ab"), frozenset("bc"))),
            dict.fromkeys("ab", "holds a workload of its anti-affinity group"),
        ),
        # A cluster that holds replicas is never dropped.
        (
            "Capacity",
            replace(placed_on(), clusters=(TargetCluster(name="b", replicas=1),)),
            NO_CONTEXT,
            {"a": "has no room for one replica"},
        ),
    ],
)
def test_which_of_four_clusters_are_refused(
    name: str, binding: Binding, surroundings: BindingContext, expected: dict[str, str]
) -> None:
    clusters, fits = [Cluster(name=each) for each in "abcd"], {"a": 0, "b": 0, "c": 1}
    assert refused(name, clusters, binding, fits=fits, surroundings=surroundings) == expected
