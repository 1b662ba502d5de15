"""Cluster affinity over a whole fleet, against one cluster at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.cluster import Cluster
from federation.model.placement import Binding, ClusterAffinity, Placement
from federation.model.selectors import matches_labels, matches_requirement
from federation.model.workload import Operator, Requirement
from tests.unit.scheduler.states import decide, shares

CLUSTERS = (
    Cluster(name="c1", labels={"tier": "a", "size": "9"}, provider="p", region="r1"),
    Cluster(name="c2", labels={"tier": "b", "size": "12"}, region="r1", zones=("z1", "z2")),
    Cluster(name="c3", provider="q", region="r2", zones=("z2",)),
)


def names(affinity: ClusterAffinity, clusters: Sequence[Cluster] = CLUSTERS) -> list[str]:
    binding = Binding(name="web", replicas=1, placement=Placement(affinity=affinity))
    return list(shares(decide(binding, {}, clusters=clusters)))


def by_field(key: str, operator: Operator, *values: str) -> ClusterAffinity:
    return ClusterAffinity(match_fields=(Requirement(key=key, operator=operator, values=values),))


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (ClusterAffinity(), ["c1", "c2", "c3"]),
        (ClusterAffinity(cluster_names=("c3", "c1", "gone")), ["c1", "c3"]),
        (ClusterAffinity(cluster_names=("c1", "c2"), exclude=("c2",)), ["c1"]),
        (ClusterAffinity(cluster_names=("gone",)), []),
        (ClusterAffinity(match_labels={"tier": "a"}), ["c1"]),
        (ClusterAffinity(match_labels={"tier": "a", "size": "12"}), []),
        (by_field("provider", Operator.IN, "p", "x"), ["c1"]),
        (by_field("provider", Operator.NOT_IN, "p"), ["c2", "c3"]),
        (by_field("provider", Operator.EXISTS), ["c1", "c3"]),
        (by_field("provider", Operator.DOES_NOT_EXIST), ["c2"]),
        (by_field("region", Operator.IN, "r1"), ["c1", "c2"]),
        (by_field("region", Operator.NOT_IN, "r1"), ["c3"]),
        (by_field("zone", Operator.IN, "z1"), ["c2"]),
        (by_field("zone", Operator.IN, "z2"), ["c2", "c3"]),
        (by_field("zone", Operator.NOT_IN, "z1"), ["c1", "c3"]),
        (by_field("zone", Operator.EXISTS), ["c2", "c3"]),
        (by_field("zone", Operator.DOES_NOT_EXIST), ["c1"]),
    ],
)
def test_matching(affinity: ClusterAffinity, expected: list[str]) -> None:
    assert names(affinity) == expected


VALUES = st.sampled_from(["1", "2", "10", "word"])
REQUIREMENTS = st.builds(
    Requirement,
    key=st.sampled_from(["k", "l"]),
    operator=st.sampled_from(list(Operator)),
    values=st.lists(VALUES, max_size=2).map(tuple),
)
LABELS = st.dictionaries(st.sampled_from(["k", "l"]), VALUES)


@settings(max_examples=200, deadline=None)
@given(st.lists(LABELS, max_size=6), st.lists(REQUIREMENTS, max_size=3), LABELS, st.booleans())
def test_columns_equal_one_cluster_at_a_time(
    labels: list[dict[str, str]],
    requirements: list[Requirement],
    selector: dict[str, str],
    use_selector: bool,
) -> None:
    clusters = [Cluster(name=f"c{n}", labels=each) for n, each in enumerate(labels)]
    wanted = selector if use_selector else {}
    affinity = ClusterAffinity(match_labels=wanted, match_expressions=tuple(requirements))
    expected = [
        each.name
        for each in clusters
        if matches_labels(wanted, each.labels)
        and all(matches_requirement(one, each.labels) for one in requirements)
    ]
    assert names(affinity, clusters) == expected
