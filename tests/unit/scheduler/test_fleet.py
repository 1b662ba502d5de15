"""The array snapshot of a fleet: order, columns, lost clusters, bounds on what is kept."""

from __future__ import annotations

import pytest

from federation.model.cluster import Cluster
from federation.model.errors import InvalidRequest
from federation.model.placement import ClusterAffinity, Placement
from federation.model.positions import Moves
from federation.model.reasons import NO_REASON, stored_reason
from federation.scheduler.fleet import MAX_LABEL_COLUMNS, Column, Fleet
from federation.scheduler.resolved_placement import MAX_REMEMBERED_SELECTORS, ResolvedPlacement


def test_clusters_stand_in_the_order_of_their_names_and_each_is_there_once() -> None:
    fleet = Fleet.of([Cluster(name="b", region="x"), Cluster(name="a"), Cluster(name="c")])
    assert fleet.names == ("a", "b", "c")
    assert fleet.index == {"a": 0, "b": 1, "c": 2}
    assert fleet.region.where(bool).tolist() == [False, True, False]
    assert fleet.named(["b", "gone"]).tolist() == [False, True, False]
    assert Fleet.of([]).region.where(bool).tolist() == []
    with pytest.raises(InvalidRequest, match="cluster 'a' is given twice"):
        Fleet.of([Cluster(name="a"), Cluster(name="b"), Cluster(name="a")])


def test_lost_clusters_are_not_ready_for_the_reason_given_unless_they_were_not_before() -> None:
    fleet = Fleet.of([Cluster(name="a", cordoned=True), Cluster(name="b"), Cluster(name="c")])
    lost = fleet.without(Column.of(map(stored_reason, ["is stale", "is unseen", ""])))
    reasons = [str(lost.unready.values[code]) for code in lost.unready.code_c]
    assert reasons == ["is cordoned", "is unseen", ""]
    assert lost.ready_c.tolist() == [False, False, True]
    assert fleet.ready_c.tolist() == [False, True, True]
    assert fleet.without(Column.of([NO_REASON] * 3)) is fleet


def test_columns_of_labels_are_bounded_and_end_when_no_placement_names_them() -> None:
    labels = {f"key-{number}": "x" for number in range(1000)}
    fleet = Fleet.of([Cluster(name="a", labels=labels), Cluster(name="b")])
    for number in range(1000):
        assert fleet.label(f"key-{number}").values == ("x", None)
        # A key that no cluster carries takes no column.
        assert fleet.label(f"other-{number}").values == (None,)
    assert len(fleet._labels) == MAX_LABEL_COLUMNS
    newer = fleet.after(Moves(), {1: Cluster(name="b", labels={"key-3": "y", "other-7": "y"})})
    assert newer.label("key-3").values == ("x", "y")
    assert newer.label("other-7").values == (None, "y")
    newest = newer.after(Moves(), {1: Cluster(name="b")})
    assert set(newest._labels) <= {"key-3", "other-7"}
    assert newest.label("key-3").values == newest.label("key-4").values == ("x", None)


def test_terms_of_very_many_selectors_are_not_remembered() -> None:
    fleet = Fleet.of([Cluster(name="a")])

    def placement(keys: int) -> Placement:
        affinity = ClusterAffinity(match_labels={f"key-{number}": "x" for number in range(keys)})
        return Placement(affinity=affinity)

    few, many = placement(3), placement(MAX_REMEMBERED_SELECTORS + 1)
    assert ResolvedPlacement.of(few, fleet) is ResolvedPlacement.of(few, fleet)
    assert ResolvedPlacement.of(many, fleet) is not ResolvedPlacement.of(many, fleet)
