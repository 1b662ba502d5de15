"""Known packings: they are what packing anew gives, and only of the very same report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from federation.capacity import known_packings
from federation.capacity.cluster_room import ReportId, Room, Site, late_in_order, packed_anew
from federation.capacity.known_packings import KnownPackings
from federation.capacity.pool_kinds import PoolKinds
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding
from tests.unit.capacity.test_reserve import REPORT, pools, wanted

POOLS = [pools((3, 40), (2, 25)), pools((1, 20)), pools((4, 35), (1, 15))]
KINDS = PoolKinds().with_pools(POOLS, ())
# The last one finds no room for all of it.
ASKED = [
    [wanted(2, 15, "a"), wanted(3, 10, "b")],
    [wanted(1, 10, "a")],
    [wanted(5, 30, "a"), wanted(4, 35, "b"), wanted(2, 5, "c")],
]


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rooms were packed each time."""
    counts: list[int] = []

    def counted(
        kinds: PoolKinds, every: Sequence[tuple[Site, Sequence[Outstanding]]]
    ) -> list[Room]:
        counts.append(len(every))
        return packed_anew(kinds, every)

    monkeypatch.setattr(known_packings, "packed_anew", counted)
    return counts


def sites(kinds: PoolKinds = KINDS, every: Sequence[Pools] = POOLS) -> list[Site]:
    return [Site.of(REPORT, each, kinds, follows_claims=False) for each in every]


def plain(room: Room) -> tuple[object, ...]:
    left, held = room.left, room.held
    table = left.table_xk.tolist(), left.first_s.tolist(), left.used_s.tolist()
    holdings = [(each.outstanding, each.steps, each.unplaced) for each in room.holdings]
    return *table, left.resources, holdings, held.is_overcommitted, held.replicas, room.report


def test_what_is_asked_again_is_known_and_the_same() -> None:
    known = KnownPackings()
    every = list(zip(sites(), ASKED, strict=True))
    fresh = [plain(each) for each in packed_anew(KINDS, every)]
    assert [each[5] for each in fresh] == [False, False, True]
    for _ in range(2):
        assert [plain(each) for each in known.packed(KINDS, every)] == fresh


def test_only_what_is_not_known_is_packed(packings: list[int]) -> None:
    known = KnownPackings()
    known.packed(KINDS, list(zip(sites(), ASKED, strict=True)))
    # As another request would read them, in other values.
    again = [[replaced(each) for each in outstanding] for outstanding in ASKED]
    changed = [*again[:2], [*again[2], wanted(1, 5, "d")]]
    known.packed(KINDS, list(zip(sites(), again, strict=True)))
    found = known.packed(KINDS, list(zip(sites(), changed, strict=True)))
    assert packings == [3, 0, 1]
    assert plain(found[2]) == plain(packed_anew(KINDS, [(sites()[2], changed[2])])[0])


def replaced(outstanding: Outstanding) -> Outstanding:
    return outstanding._replace(requirements=replace(outstanding.requirements))


def test_what_is_late_is_known_apart_from_rooms(
    packings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def counted(kinds: PoolKinds, every: Sequence[tuple[Site, Sequence[Outstanding]]]) -> list[int]:
        counts.append(len(every))
        return late_in_order(kinds, every)

    monkeypatch.setattr(known_packings, "late_in_order", counted)
    known, every = KnownPackings(), list(zip(sites(), ASKED, strict=True))
    late = late_in_order(KINDS, every)
    assert [bool(each) for each in late] == [False, False, True]
    assert [known.late(KINDS, every) for _ in range(2)] == [late, late]
    known.packed(KINDS, every)
    assert (counts, packings) == ([3, 0], [3])


def test_another_report_another_placer_and_other_kinds_are_packed_anew(
    packings: list[int],
) -> None:
    known, every = KnownPackings(), list(zip(sites(), ASKED, strict=True))
    known.packed(KINDS, every)
    (site, *_), (outstanding, *_) = sites(), ASKED
    newer = replace(site, report=ReportId(1, 8))
    assert known.packed(KINDS, [(newer, outstanding)])[0].report == ReportId(1, 8)
    planned = replace(site, follows_claims=True)
    assert known.packed(KINDS, [(planned, outstanding)])[0].follows_claims
    same_cells = replace(POOLS[0])
    (like, *_) = sites(every=[same_cells])
    assert known.packed(KINDS, [(like, outstanding)])[0].pools is same_cells
    others = PoolKinds().with_pools(POOLS, ())
    assert known.packed(others, [(sites(others)[0], outstanding)])[0].kinds is others
    assert packings == [3, 1, 1, 1, 1]


def test_kinds_that_only_count_other_pools_are_no_other_kinds(packings: list[int]) -> None:
    known, every = KnownPackings(), list(zip(sites(), ASKED, strict=True))
    known.packed(KINDS, every)
    counted = KINDS.with_pools([POOLS[0]], ())
    assert counted.counts != KINDS.counts
    assert all(each.kinds is counted for each in known.packed(counted, every))
    assert packings == [3, 0]


def test_the_clusters_that_were_asked_about_first_are_forgotten_first(
    packings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_packings, "_MOST_CLUSTERS", 2)
    known, every = KnownPackings(), list(zip(sites(), ASKED, strict=True))
    for each in (*every, every[2], every[1], every[0]):
        known.packed(KINDS, [each])
    assert packings == [1, 1, 1, 0, 0, 1]
    other = [wanted(1, each, "x") for each in range(1, 5)]
    for each in (*other, *other, wanted(1, 9, "x"), other[0]):
        known.packed(KINDS, [(every[0][0], [each])])
    # Of each cluster only the newest few.
    assert packings[6:] == [1] * 4 + [0] * 4 + [1, 1]


def test_nothing_is_asked() -> None:
    assert KnownPackings().packed(KINDS, []) == []
    assert np.array(KINDS.counts).sum() == len(POOLS)
