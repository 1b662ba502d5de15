"""The judges of who waits, and of who lost room to whom.

No database.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from federation.model.placement import PreemptionPolicy
from lab.chaos.glances import Row, in_order, lost, wrong_rows
from lab.chaos.preempting import (
    OF_A_NAMESPACE,
    OF_ALL,
    Loss,
    Spent,
    beyond_limits,
    filler,
    urgent,
    wrong_losses,
)

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


FILLER = filler(0)
ABOVE = replace(FILLER, name="above", priority=-4, preemption_policy=urgent().preemption_policy)
BINDINGS = {each.key: each for each in (FILLER, ABOVE, urgent())}
LOSS = Loss("one", ABOVE.key, FILLER.key, "member1", 3, FILLER.priority)
TOLD = {FILLER.key: Counter({ABOVE.key: 1})}


def test_who_loses_to_a_higher_priority_is_no_violation() -> None:
    elsewhere = LOSS._replace(cluster="member2")
    assert wrong_losses([LOSS, elsewhere], TOLD, BINDINGS) == []


def test_a_loss_to_an_equal_priority_is_found() -> None:
    equal = {**BINDINGS, ABOVE.key: replace(ABOVE, priority=FILLER.priority)}
    (found,) = wrong_losses([LOSS], TOLD, equal)
    assert "lost to -5" in found


def test_who_must_not_preempt_or_be_preempted_is_found() -> None:
    kept = {**BINDINGS, FILLER.key: replace(FILLER, preemptible=False)}
    (found,) = wrong_losses([LOSS], TOLD, kept)
    assert "must not be preempted" in found
    never = {**BINDINGS, ABOVE.key: replace(ABOVE, preemption_policy=PreemptionPolicy.NEVER)}
    (found,) = wrong_losses([LOSS], TOLD, never)
    assert "must not preempt" in found


def test_a_loss_that_is_told_twice_or_never_is_found() -> None:
    for told in ({}, {FILLER.key: Counter({ABOVE.key: 2})}):
        (found,) = wrong_losses([LOSS], told, BINDINGS)
        assert "was told" in found


def test_more_than_a_minute_may_lose_is_found() -> None:
    apart = [Spent(30.0 * place, "shop", OF_A_NAMESPACE // 2) for place in range(5)]
    assert beyond_limits(apart) == []
    assert beyond_limits([*apart, Spent(31.0, "shop", 2)])
    others = [Spent(0.0, f"team-{place}", OF_ALL // 4) for place in range(4)]
    assert beyond_limits(others) == []
    assert beyond_limits([*others, Spent(59.0, "shop", 1)])
