"""How long pods are assumed on nodes that no watch shows them on."""

from __future__ import annotations

import pytest

from estimator.cluster import assumptions as module
from estimator.cluster.assumptions import (
    BINDING_SECONDS,
    PREPARING_SECONDS,
    UNSHOWN_SECONDS,
    Assumptions,
)


def test_the_newest_assumption_replaces_the_one_before() -> None:
    ended: list[str] = []
    assumptions = Assumptions()
    assumptions.begin("p", 0.0, lambda _: ended.append("first"))
    assumptions.begin("p", 1.0, lambda _: ended.append("second"))
    assert (ended, len(assumptions)) == (["first"], 1)
    assumptions.end("p")
    assumptions.end("p")
    assert (ended, len(assumptions)) == (["first", "second"], 0)


@pytest.mark.parametrize(
    ("is_shown", "is_prepared", "seconds"),
    [
        (True, False, BINDING_SECONDS),
        (True, True, PREPARING_SECONDS),
        (False, False, UNSHOWN_SECONDS),
        (False, True, UNSHOWN_SECONDS),
    ],
)
def test_every_assumption_ends_after_a_time(
    is_shown: bool, is_prepared: bool, seconds: float
) -> None:
    ended: list[str] = []
    assumptions = Assumptions(lambda _: is_shown)
    assumptions.begin("p", 0.0, ended.append, is_prepared=is_prepared)
    assumptions.begin("q", 1.0, ended.append, is_prepared=is_prepared)
    assumptions.expire(seconds - 0.1)
    assert ended == []
    assumptions.expire(seconds)
    assert ended == ["p"]
    assumptions.expire(seconds + 1.0)
    assert ended == ["p", "q"]


def test_a_pod_that_is_shown_meanwhile_counts_longer() -> None:
    shown: set[str] = set()
    ended: list[str] = []
    assumptions = Assumptions(shown.__contains__)
    assumptions.begin("p", 0.0, ended.append)
    shown.add("p")
    assumptions.expire(UNSHOWN_SECONDS)
    assert ended == []
    assumptions.expire(BINDING_SECONDS)
    assert ended == ["p"]


def test_no_time_ends_an_assumption_while_the_watches_show_nothing() -> None:
    ended: list[str] = []
    assumptions = Assumptions()
    assumptions.begin("p", 0.0, ended.append)
    assumptions.hold(BINDING_SECONDS)
    assumptions.expire(BINDING_SECONDS + 1.0)
    assert ended == []
    assumptions.expire(BINDING_SECONDS + UNSHOWN_SECONDS)
    assert ended == ["p"]


def test_a_deleted_pod_is_not_assumed_until_it_is_shown_again() -> None:
    ended: list[str] = []
    assumptions = Assumptions()
    assumptions.begin("p", 0.0, ended.append)
    assumptions.deleted("p")
    assert ended == ["p"]
    assert not assumptions.begin("p", 0.0, ended.append)
    assumptions.shown("p")
    assert assumptions.begin("p", 0.0, ended.append)


def test_only_the_newest_deleted_pods_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DELETED", 2)
    assumptions = Assumptions()
    for uid in ("p", "q", "r"):
        assumptions.deleted(uid)
    assert [assumptions.begin(uid, 0.0, print) for uid in ("p", "q", "r")] == [True, False, False]


def test_a_pod_that_a_watch_past_its_version_has_not_shown_is_gone() -> None:
    shown: set[str] = set()
    ended: list[str] = []
    assumptions = Assumptions(shown.__contains__)
    assumptions.reach(7)
    for uid, version in (("p", 8), ("q", 9), ("unknown", 0), ("shown", 8)):
        assert assumptions.begin(uid, 0.0, ended.append, version=version)
    shown.add("shown")
    assumptions.shown("shown")
    assumptions.reach(8)
    assert ended == ["p"]
    assumptions.reach(100)
    assert ended == ["p", "q"]
    assert len(assumptions) == 2


def test_a_pod_that_would_have_been_shown_by_now_is_not_assumed() -> None:
    assumptions = Assumptions(lambda uid: uid == "shown")
    assumptions.reach(8)
    answers = {
        (uid, version): assumptions.begin(uid, 0.0, print, version=version)
        for uid, version in (("p", 8), ("p", 9), ("p", 0), ("shown", 8))
    }
    assert answers == {("p", 8): False, ("p", 9): True, ("p", 0): True, ("shown", 8): True}


def test_versions_of_another_history_begin_anew() -> None:
    ended: list[str] = []
    assumptions = Assumptions(lambda _: False)
    assumptions.reach(1000)
    assumptions.reach(3)
    assert assumptions.begin("p", 0.0, ended.append, version=5)
    assumptions.reach(5)
    assert ended == ["p"]
