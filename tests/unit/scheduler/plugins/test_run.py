"""Plugins that do what they may not: the binding fails with their name, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.errors import PluginFailed
from federation.model.placement import Binding
from federation.model.reasons import NO_REASON
from federation.model.workload import ObjectReference
from federation.scheduler.plugins.filters import FILTERS
from federation.scheduler.plugins.profile import (
    Filter,
    Permit,
    PostBind,
    QueueSort,
    Reserve,
    Score,
)
from federation.scheduler.plugins.run import (
    hear_by,
    keep_by,
    objection_by,
    order_by,
    refusals_by,
    scores_by,
    undo_by,
)
from federation.scheduler.state import CycleState, SortState
from tests.unit.scheduler.states import state_of

CLUSTERS = [Cluster(name=name) for name in "abc"]


def state() -> CycleState:
    return state_of(CLUSTERS, Binding(name="web", replicas=3))


def raises(error: BaseException) -> Callable[..., Any]:
    def run(*_: object) -> Any:
        raise error

    return run


def writes(state: CycleState) -> Any:
    state.fleet.region.code_c[0] = 7


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (raises(ValueError("no such label")), "raised ValueError: “no such label”"),
        (raises(SystemExit(3)), "raised SystemExit: “3”"),
        (writes, "raised ValueError: “assignment destination is read-only”"),
        (lambda _: None, "answered nothing, not an array of integers"),
        (lambda _: [1, 2, 3], "answered a list, not an array of integers"),
        (lambda _: np.zeros(3), "answered an array of float64, not of integers"),
        (lambda _: np.zeros(3, np.bool_), "answered an array of bool, not of integers"),
        (lambda _: np.zeros(2, np.int64), "answered an array of shape (2,), not (3,)"),
        (lambda _: np.zeros((3, 1), np.int64), "answered an array of shape (3, 1), not (3,)"),
        (lambda _: np.array([0, 101, -1]), "scored cluster b 101; scores are from 0 to 100"),
        (lambda _: np.array([0, 100, -1]), "scored cluster c -1; scores are from 0 to 100"),
    ],
)
def test_a_score_plugin_answers_a_score_for_each_cluster(
    run: Callable[[CycleState], Any], what: str
) -> None:
    with pytest.raises(PluginFailed) as caught:
        scores_by(Score(name="Bad", run=run, weight=1), state())
    assert caught.value.message == f"The scheduler plugin Bad failed: it {what}."
    assert caught.value.reason == "PLUGIN_FAILED"


NONE_C = np.zeros(3, np.bool_)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (None, "answered nothing, not pairs of clusters and reason"),
        ("ab", "answered a str, not pairs of clusters and reason"),
        (NONE_C, "answered a ndarray, not pairs of clusters and reason"),
        ([NONE_C], "answered a ndarray, not a pair of clusters and reason"),
        ([(NONE_C, "why", 1)], "answered a tuple, not a pair of clusters and reason"),
        ([([True], "why")], "answered a list, not an array of booleans"),
        ([(np.zeros(3, np.int64), "why")], "answered an array of int64, not of booleans"),
        ([(NONE_C[:2], "why")], "answered an array of shape (2,), not (3,)"),
        ([(NONE_C, "")], "gave no reason, which is up to 1000 printable characters"),
        ([(NONE_C, None)], "gave no reason, which is up to 1000 printable characters"),
        ([(NONE_C, "two\nlines")], "gave no reason, which is up to 1000 printable characters"),
        ([(NONE_C, "\ud800")], "gave no reason, which is up to 1000 printable characters"),
        ([(NONE_C, "x" * 1001)], "gave no reason, which is up to 1000 printable characters"),
    ],
)
def test_a_filter_answers_pairs(answer: Any, what: str) -> None:
    with pytest.raises(PluginFailed) as caught:
        refusals_by(Filter(name="Bad", run=lambda _: answer), state())
    assert caught.value.message == f"The scheduler plugin Bad failed: it {what}."


@pytest.mark.parametrize("answer", [None, False, 3, "a\0b"])
def test_a_permit_plugin_answers_text(answer: Any) -> None:
    plugin = Permit(name="Bad", run=lambda _state, _replicas_c: answer)
    with pytest.raises(PluginFailed, match="Bad failed: it gave no reason"):
        objection_by(plugin, state(), np.zeros(3, np.int64))


def test_shares_shown_to_a_permit_plugin_cannot_be_changed() -> None:
    replicas_c = np.array([1, 2, 0])

    def takes(_state: CycleState, shown_c: Any) -> str:
        shown_c[0] = 0
        return ""

    with pytest.raises(PluginFailed, match="read-only"):
        objection_by(Permit(name="Bad", run=takes), state(), replicas_c)
    assert replicas_c.tolist() == [1, 2, 0]


def test_what_a_plugin_changes_later_changes_nothing() -> None:
    kept_c = np.array([1, 2, 3], dtype=np.uint8)
    refused_c = np.array([True, False, False])
    score_c = scores_by(Score(name="Keeps", run=lambda _: kept_c, weight=1), state())
    ((mask_c, reason),) = refusals_by(
        Filter(name="Keeps", run=lambda _: [(refused_c, "is full")]), state()
    )
    kept_c[:] = 0
    refused_c[:] = False
    assert (score_c.tolist(), mask_c.tolist(), str(reason)) == (
        [1, 2, 3],
        [True, False, False],
        "“is full”",
    )


def test_the_longest_names_there_may_be_fit_into_a_reason() -> None:
    taint = Taint(key=f"{'d' * 253}/{'k' * 63}", value="v" * 63, effect=TaintEffect.NO_SCHEDULE)
    cluster = Cluster(name="a", taints=(taint,), api_enablements=frozenset())
    binding = Binding(
        name="web", resource=ObjectReference(api_version="g" * 253, kind="k" * 253), replicas=1
    )
    reasons = [
        reason
        for name, run in FILTERS.items()
        for refused_c, reason in refusals_by(
            Filter(name=name, run=run), state_of([cluster], binding)
        )
        if refused_c.any()
    ]
    assert len(reasons) == 2


def test_reserve_and_post_bind_plugins_are_held_to_the_same() -> None:
    replicas_c = np.array([1, 2, 0])
    keeps = Reserve(name="Keeps", run=lambda _state, _c: "", undo=raises(KeyError("x")))
    assert keep_by(keeps, state(), replicas_c) == NO_REASON
    with pytest.raises(PluginFailed, match="Keeps failed: it raised KeyError"):
        undo_by(keeps, state(), replicas_c)
    undo_by(Reserve(name="Forgets", run=lambda _state, _c: ""), state(), replicas_c)
    objects = Reserve(name="Objects", run=lambda _state, _c: "no licence")
    assert str(keep_by(objects, state(), replicas_c)) == "Objects: “no licence”"
    with pytest.raises(PluginFailed, match="gave no reason"):
        keep_by(Reserve(name="Bad", run=lambda _state, _c: None), state(), replicas_c)  # type: ignore[arg-type,return-value]  # wrong by intent

    def takes(_state: CycleState, shown_c: Any) -> None:
        shown_c[0] = 0

    with pytest.raises(PluginFailed, match="read-only"):
        hear_by(PostBind(name="Bad", run=takes), state(), replicas_c)
    assert replicas_c.tolist() == [1, 2, 0]


def waiting() -> SortState:
    bindings = tuple(Binding(name=name, replicas=3) for name in "ab")
    return SortState(bindings=bindings, priority_w=np.array([0, 0]), since_w=np.array([1.5, 2.5]))


def test_a_queue_sort_plugin_answers_an_instant_for_each_binding() -> None:
    def sorts(answer: Any) -> QueueSort:
        return QueueSort(name="Sorts", run=lambda _: answer)

    assert order_by(QueueSort(name="Sorts", run=lambda s: s.since_w), waiting()).tolist() == [
        1.5,
        2.5,
    ]
    assert order_by(sorts(np.array([7, 0])), waiting()).tolist() == [7.0, 0.0]
    for answer, what in (
        (None, "answered nothing, not an array of numbers"),
        (np.array([1.0]), r"answered an array of shape \(1,\), not \(2,\)"),
        (np.array([True, False]), "answered an array of bool, not of numbers"),
        (np.array([1.0, np.nan]), r"ordered binding “b” by nan; instants are from 0 to 1e\+10"),
        (np.array([-1.0, np.inf]), "ordered binding “a” by -1.0"),
    ):
        with pytest.raises(PluginFailed, match=f"Sorts failed: it {what}"):
            order_by(sorts(answer), waiting())
    with pytest.raises(PluginFailed, match="Bad failed: it raised KeyError"):
        order_by(QueueSort(name="Bad", run=raises(KeyError("x"))), waiting())
