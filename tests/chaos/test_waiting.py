"""The checker of the queue itself: it must find who is lost, and who waits for nothing."""

from __future__ import annotations

from dataclasses import replace

from lab.chaos.glances import Row, in_order, lost, wrong_rows

PLACED = Row(
    key="shop/web",
    is_there=True,
    waits=False,
    priority=0,
    since=None,
    replicas=3,
    scheduling="Divided",
    decision="two",
    outcome="SCHEDULED",
    clusters=[{"name": "member1", "replicas": 1}, {"name": "member2", "replicas": 2}],
)
WAITING = replace(PLACED, waits=True, since=5.0, outcome="UNSCHEDULABLE", clusters=[])


def test_who_is_placed_and_who_waits_is_no_violation() -> None:
    everywhere = replace(
        PLACED, scheduling="Duplicated", replicas=2, clusters=[{"replicas": 2}] * 2
    )
    assert wrong_rows([PLACED, WAITING, everywhere]) == []


def test_who_waits_with_all_its_places_is_found() -> None:
    (found,) = wrong_rows([replace(PLACED, waits=True)])
    assert found.startswith("shop/web waits, and two gave it all")


def test_who_waits_and_is_gone_is_found() -> None:
    assert wrong_rows([replace(WAITING, is_there=False)]) == ["shop/web is gone and waits"]


def test_who_has_too_little_and_does_not_wait_is_found() -> None:
    uneven = replace(PLACED, scheduling="Duplicated", replicas=2)
    for each in (replace(WAITING, waits=False), replace(PLACED, replicas=4), uneven):
        (found,) = wrong_rows([each])
        assert found.startswith("shop/web is lost")


def test_who_was_told_that_it_waits_does_or_was_placed_since() -> None:
    assert lost([WAITING], {"shop/web": "two"}) == []
    assert lost([PLACED], {"shop/web": "one"}) == []
    for rows in ([], [PLACED], [replace(WAITING, waits=False)]):
        assert len(lost(rows, {"shop/web": "two"})) == 1


def test_the_order_is_by_priority_then_since_then_name() -> None:
    urgent = replace(WAITING, key="shop/urgent", priority=7, since=9.0)
    earlier = replace(WAITING, key="shop/z", since=4.0)
    assert in_order([PLACED, WAITING, urgent, earlier]) == ["shop/urgent", "shop/z", "shop/web"]
