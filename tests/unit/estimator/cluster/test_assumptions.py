"""How long pods are assumed on nodes that no watch shows them on."""

from __future__ import annotations

import pytest

from estimator.cluster import assumptions as module
from estimator.cluster.assumptions import BINDING_SECONDS, UNSHOWN_SECONDS, Assumptions


def test_the_newest_assumption_replaces_the_one_before() -> None:
    ended: list[str] = []
    assumptions = Assumptions()
    assumptions.begin("p", 0.0, lambda _: ended.append("first"))
    assumptions.begin("p", 1.0, lambda _: ended.append("second"))
    assert (ended, len(assumptions)) == (["first"], 1)
    assumptions.end("p")
    assumptions.end("p")
    assert (ended, len(assumptions)) == (["first", "second"], 0)


def test_no_time_ends_an_assumption_while_the_watches_show_nothing() -> None:
    ended: list[str] = []
    assumptions = Assumptions()
    assumptions.begin("p", 0.0, ended.append)
    assumptions.hold(BINDING_SECONDS)
    assumptions.expire(BINDING_SECONDS + 1.0)
    assert ended == []
    assumptions.expire(BINDING_SECONDS + UNSHOWN_SECONDS)
    assert ended == ["p"]


def test_only_the_newest_deleted_pods_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DELETED", 2)
    assumptions = Assumptions()
    for uid in ("p", "q", "r"):
        assumptions.deleted(uid)
    assert [assumptions.begin(uid, 0.0, print) for uid in ("p", "q", "r")] == [True, False, False]


def test_versions_of_another_history_begin_anew() -> None:
    ended: list[str] = []
    assumptions = Assumptions(lambda _: False)
    assumptions.reach(1000)
    assumptions.reach(3)
    assert assumptions.begin("p", 0.0, ended.append, version=5)
    assumptions.reach(5)
    assert ended == ["p"]


def test_a_pod_that_the_watch_has_not_reached_is_not_given_up_for_its_delay() -> None:
    ended: list[str] = []
    assumptions = Assumptions(lambda _: False)
    assumptions.reach(7)
    assert assumptions.begin("p", 0.0, ended.append, version=8)
    assumptions.expire(BINDING_SECONDS - 0.1)
    assert ended == []
    assumptions.expire(BINDING_SECONDS)
    assert ended == ["p"]
