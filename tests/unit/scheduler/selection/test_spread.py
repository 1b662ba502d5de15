"""Selection by hand-made cases: swaps, regions, zones, providers, and what a shortage says."""

from __future__ import annotations

import numpy as np
import pytest

from federation.model.placement import SpreadConstraint, SpreadField
from federation.scheduler.fleet import Column
from federation.scheduler.selection.spread import (
    Need,
    Region,
    Selection,
    Shortlist,
    choose_regions,
    select,
)

CLUSTER, REGION = SpreadField.CLUSTER, SpreadField.REGION
ZONE, PROVIDER = SpreadField.ZONE, SpreadField.PROVIDER

UNDER = " under the spread constraints"


def by(field: SpreadField, least: int, most: int | None = None) -> SpreadConstraint:
    return SpreadConstraint(by=field, min_groups=least, max_groups=most)


def holding(replicas: int, *, partial: bool = False) -> Need:
    return Need(replicas=replicas, heeds_capacity=True, partial=partial)


def shortlist(
    capacities: list[int],
    *,
    scores: list[int] | None = None,
    regions: str = "",
    zones: list[str] | None = None,
    providers: str = "",
) -> Shortlist:
    """Clusters in candidate order; one letter a region or provider, several for zones."""
    count = len(capacities)
    return Shortlist(
        score_k=np.array(scores or [0] * count, dtype=np.int64),
        capacity_k=np.array(capacities, dtype=np.int64),
        groups={
            REGION: Column.of((letter,) for letter in regions or "r" * count),
            PROVIDER: Column.of((letter,) for letter in providers or "p" * count),
            ZONE: Column.of(tuple(letters) for letters in zones or ["z"] * count),
        },
    )


def chosen(selection: Selection) -> list[int]:
    assert not selection.shortage
    positions: list[int] = selection.order_k.tolist()
    return positions


def test_the_roomiest_are_swapped_in_from_the_end() -> None:
    given = shortlist([9, 5, 1, 7, 6, 2], scores=[100, 100, 100, 0, 0, 0])
    assert chosen(select(given, (), holding(9))) == [0, 1, 2, 3, 4, 5]
    assert chosen(select(given, (by(CLUSTER, 1),), holding(4))) == [0, 1, 2, 3, 4, 5]
    assert chosen(select(given, (by(CLUSTER, 1, 3),), holding(15))) == [0, 1, 2]
    assert chosen(select(given, (by(CLUSTER, 1, 3),), holding(21))) == [0, 1, 3]
    assert chosen(select(given, (by(CLUSTER, 1, 3),), holding(22))) == [0, 4, 3]


def test_regions_are_chosen_by_what_they_hold() -> None:
    given = shortlist([9, 9, 5, 5, 1], regions="aabbc")
    selection = select(given, (by(REGION, 1, 1), by(CLUSTER, 1, 2)), holding(12))
    assert chosen(selection) == [0, 1]
    assert selection.group_scores == {"a": 12_000, "b": 10_000, "c": 1_000}


def test_regions_too_small_together_are_replaced_by_others() -> None:
    """Scores prefer a and b, whose best clusters hold less than those of c and d."""
    given = shortlist([7, 6, 4, 4, 4, 4], regions="dcaabb")
    selection = select(given, (by(REGION, 2, 2), by(CLUSTER, 2, 2)), holding(13))
    assert selection.group_scores == {"a": 7_000, "b": 7_000, "c": 6_000, "d": 7_000}
    assert selection.rule == "search"
    assert chosen(selection) == [0, 1]


def test_a_search_keeps_placements_where_it_can() -> None:
    given = shortlist([6, 5, 5, 6], scores=[100, 0, 0, 0], zones=["ab", "a", "a", "c"])
    selection = select(given, (by(ZONE, 3, 3),), holding(10))
    assert 0 in chosen(selection)


@pytest.mark.parametrize(
    ("constraints", "replicas", "shortage", "lacks_capacity"),
    [
        ((by(REGION, 3),), 1, "2 regions have candidates, 3 wanted", False),
        ((by(CLUSTER, 5),), 1, "4 clusters have candidates, 5 wanted", False),
        (
            (by(CLUSTER, 1, 2),),
            99,
            "no more than 13 replicas are available" + UNDER + " (cluster 1 to 2), 99 wanted",
            True,
        ),
        (
            (by(REGION, 2), by(CLUSTER, 1, 1)),
            1,
            "no choice keeps all spread constraints (region at least 2, cluster 1 to 1)",
            False,
        ),
        (
            (by(REGION, 2, 2), by(CLUSTER, 2, 2)),
            12,
            "11 replicas are available" + UNDER + " (region 2 to 2, cluster 2 to 2), 12 wanted",
            True,
        ),
    ],
)
def test_shortages_name_numbers(
    constraints: tuple[SpreadConstraint, ...], replicas: int, shortage: str, lacks_capacity: bool
) -> None:
    selection = select(shortlist([7, 6, 4, 1], regions="aabb"), constraints, holding(replicas))
    assert str(selection.shortage) == shortage
    assert selection.lacks_capacity is lacks_capacity
    assert not len(selection.order_k)


def test_duplicated_prefers_regions_whose_clusters_hold_everything() -> None:
    given = shortlist([9, 9, 9, 2, 2], regions="aabcc")
    need = Need(replicas=5, heeds_capacity=False)
    assert chosen(select(given, (by(REGION, 2, 2), by(CLUSTER, 2, 3)), need)) == [0, 2, 1]


def test_twenty_of_two_hundred_regions() -> None:
    regions = [
        Region(name=f"r{number:03d}", clusters=number % 7 + 1, score=number * 37 % 5_000)
        for number in range(200)
    ]
    assert len(choose_regions(regions, min_regions=20, max_regions=20, min_clusters=100)) == 20


def test_a_search_that_is_cut_short_says_so_and_nested_groups_are_searched_to_the_end() -> None:
    count = 60
    tangled = shortlist(
        list(range(count)),
        zones=[f"{'abcdefghijklmnopqrstuvw'[k * 7 % 23]}{'ABCDEFGHIJKLMNOPQRSTUVWXYZ'[k * 11 % 26]}"
               for k in range(count)],
        providers="".join("pqrst"[k % 5] for k in range(count)),
    )  # fmt: skip
    wanted = (by(ZONE, 2, 9), by(PROVIDER, 2, 4), by(CLUSTER, 3, 20))
    cut_short = "; not proven, the search was cut short"
    assert str(select(tangled, wanted, holding(10**6)).shortage).endswith(cut_short)
    # Of 40 regions with 3 zones each groups nest, so nothing is cut.
    regions = [chr(0x4E00 + k % 40) for k in range(240)]
    nested = shortlist(
        list(range(240)),
        regions="".join(regions),
        zones=[chr(0x5E00 + k % 120) for k in range(240)],
    )
    wanted = (by(REGION, 3, 4), by(ZONE, 5), by(CLUSTER, 1, 8))
    # The four best regions are those of the last clusters; of their 24 clusters eight are best.
    most = sum(sorted((k for k in range(240) if k % 40 >= 36), reverse=True)[:8])
    shortage = str(select(nested, wanted, holding(most + 60)).shortage)
    assert shortage.startswith(f"{most} replicas are available")
    assert shortage.endswith(f"{most + 60} wanted")
