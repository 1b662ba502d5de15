"""The checkers of preemption among rivals: they must find what must never be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from federation.model.placement import PreemptionPolicy
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
