"""The array snapshot of clusters."""

from __future__ import annotations

import pytest

from federation.model.cluster import Cluster
from federation.model.errors import InvalidRequest
from federation.model.placement import ClusterAffinity, Placement
from federation.model.positions import Moves
from federation.scheduler.fleet import MAX_LABEL_COLUMNS, Column, Fleet
from federation.scheduler.resolved_placement import MAX_REMEMBERED_SELECTORS, Terms


def test_clusters_stand_in_the_order_of_their_names() -> None:
    fleet = Fleet.of([Cluster(name="b", region="x"), Cluster(name="a"), Cluster(name="c")])
    assert fleet.names == ("a", "b", "c")
    assert fleet.index == {"a": 0, "b": 1, "c": 2}
    assert fleet.region.where(bool).tolist() == [False, True, False]


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="cluster 'a' is given twice"):
        Fleet.of([Cluster(name="a"), Cluster(name="b"), Cluster(name="a")])


def test_labels_are_columns_with_none_for_absent() -> None:
    fleet = Fleet.of([Cluster(name="a", labels={"tier": "gold"}), Cluster(name="b")])
    assert fleet.label("tier").where(lambda value: value is None).tolist() == [False, True]
    assert fleet.label("tier") is fleet.label("tier")


def test_unknown_names_are_passed_over() -> None:
    fleet = Fleet.of([Cluster(name="a"), Cluster(name="b")])
    assert fleet.named(["b", "gone"]).tolist() == [False, True]


def test_an_empty_fleet() -> None:
    fleet = Fleet.of([])
    assert len(fleet) == 0
    assert fleet.region.where(bool).tolist() == []


def test_equal_values_share_a_code() -> None:
    column = Column.of(["x", "y", "x"])
    assert column.values == ("x", "y")
    assert column.code_c.tolist() == [0, 1, 0]


def test_lost_clusters_are_not_ready_for_the_reason_given_unless_they_were_not_before() -> None:
    fleet = Fleet.of([Cluster(name="a", cordoned=True), Cluster(name="b"), Cluster(name="c")])
    lost = fleet.without(Column.of(["is stale", "is unseen", ""]))
    assert [lost.unready.values[code] for code in lost.unready.code_c] == [
        "is cordoned",
        "is unseen",
        "",
    ]
    assert lost.ready_c.tolist() == [False, False, True]
    assert fleet.ready_c.tolist() == [False, True, True]
    assert fleet.without(Column.of(["", "", ""])) is fleet


def labelled(count: int) -> Cluster:
    return Cluster(name="a", labels={f"key-{number}": "x" for number in range(count)})


def test_a_key_that_no_cluster_carries_takes_no_column() -> None:
    fleet = Fleet.of([labelled(1), Cluster(name="b")])
    for number in range(1000):
        assert fleet.label(f"other-{number}").values == (None,)
    assert len(fleet._labels) == 0
    assert Fleet.of([]).label("other").values == ()
    newer = fleet.after(Moves(), {1: Cluster(name="b", labels={"other-7": "y"})})
    assert newer.label("other-7").values == (None, "y")


def test_columns_are_bounded_and_end_when_no_placement_names_them() -> None:
    fleet = Fleet.of([labelled(1000), Cluster(name="b")])
    for number in range(1000):
        assert fleet.label(f"key-{number}").values == ("x", None)
    assert len(fleet._labels) == MAX_LABEL_COLUMNS
    again = Cluster(name="b", labels={"key-3": "y"})
    newer = fleet.after(Moves(), {1: again})
    assert len(newer._labels) == MAX_LABEL_COLUMNS
    assert newer.label("key-3").values == ("x", "y")
    newest = newer.after(Moves(), {1: Cluster(name="b")})
    assert set(newest._labels) == {"key-3"}
    assert newest.label("key-3").values == ("x", None)
    assert newest.label("key-4").values == ("x", None)


def test_terms_of_very_many_selectors_are_not_remembered() -> None:
    fleet = Fleet.of([Cluster(name="a")])

    def placement(keys: int) -> Placement:
        affinity = ClusterAffinity(match_labels={f"key-{number}": "x" for number in range(keys)})
        return Placement(affinity=affinity)

    few, many = placement(3), placement(MAX_REMEMBERED_SELECTORS + 1)
    assert Terms.of(few, fleet) is Terms.of(few, fleet)
    assert Terms.of(many, fleet) is not Terms.of(many, fleet)
