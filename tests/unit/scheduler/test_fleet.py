"""The array snapshot of clusters."""

from __future__ import annotations

import pytest

from federation.model.cluster import Cluster
from federation.model.errors import InvalidRequest
from federation.scheduler.fleet import Column, Fleet


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
