"""Calls of plugins, with checks of their answers.

Must not know particular plugins. A faulty plugin fails its own binding only: it reads arrays that
it cannot write to, and its answers are checked and copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.errors import PluginFailed
from federation.model.quotations import quoted
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, Text, Word
from federation.scheduler.plugins.filters import FILTERS
from federation.scheduler.plugins.permits import PERMITS
from federation.scheduler.plugins.profile import (
    Filter,
    Permit,
    PostBind,
    QueueSort,
    Reserve,
    Score,
)
from federation.scheduler.plugins.scores import MAX_SCORE, SCORES
from federation.scheduler.state import CycleState, SortState

# Characters: two names of the maximum length, as of an API or a taint, and a sentence about them.
MAX_REASON: Final = 1_000
# Unix seconds (year 2286): later than any time at which bindings wait.
MAX_INSTANT: Final = 1e10
_OURS: Final = (*FILTERS.values(), *PERMITS.values())


def is_in_tree(plugin: Filter | Score) -> bool:
    """Return whether the plugin is the scheduler's own one of this name."""
    return plugin.run is (FILTERS if isinstance(plugin, Filter) else SCORES).get(plugin.name)


def _is_ours(plugin: Filter | Permit | Reserve) -> bool:
    """Return whether the function comes with the scheduler, with any arguments."""
    run = plugin.run.func if isinstance(plugin.run, partial) else plugin.run
    return any(run is ours for ours in _OURS)


def refusals_by(plugin: Filter, state: CycleState) -> list[tuple[BoolArray, Reason]]:
    """Return the clusters that a filter refuses, and why. Raises PluginFailed."""
    answer = _answer(plugin.name, plugin.run, state)
    if not isinstance(answer, (list, tuple)) and (
        isinstance(answer, str) or not isinstance(answer, Sequence)
    ):
        raise _wrong(plugin.name, f"answered {_kind(answer)}, not pairs of clusters and reason")
    refusals = []
    for pair in answer:
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise _wrong(plugin.name, f"answered {_kind(pair)}, not a pair of clusters and reason")
        refused_c, reason = pair
        _check_array(plugin.name, refused_c, "b", len(state.fleet))
        refusals.append((refused_c.copy(), _reason(plugin, reason)))
    return refusals


def scores_by(plugin: Score, state: CycleState) -> IntArray:
    """Return the scores of a score plugin. Raises PluginFailed.

    Scores of the scheduler's own plugins are not checked, which saves time in every decision.
    """
    score_c = _answer(plugin.name, plugin.run, state)
    if is_in_tree(plugin):
        in_tree_c: IntArray = score_c
        return in_tree_c
    _check_array(plugin.name, score_c, "iu", len(state.fleet))
    (wrong,) = np.nonzero((score_c < 0) | (score_c > MAX_SCORE))
    if len(wrong):
        worst, name = score_c[wrong[0]], state.fleet.names[wrong[0]]
        rule = f"scored cluster {name} {worst}; scores are from 0 to {MAX_SCORE}"
        raise _wrong(plugin.name, rule)
    copied_c: IntArray = score_c.astype(np.int64)
    return copied_c


def objection_by(plugin: Permit, state: CycleState, replicas_c: IntArray) -> Reason:
    """Return why a permit plugin objects to these shares, NO_REASON when it does not.

    Raises PluginFailed.
    """
    return _objection(plugin, state, replicas_c)


def keep_by(plugin: Reserve, state: CycleState, replicas_c: IntArray) -> Reason:
    """Let a reserve plugin reserve for these shares; return why it did not, NO_REASON when it did.

    Raises PluginFailed.
    """
    return _objection(plugin, state, replicas_c)


def undo_by(plugin: Reserve, state: CycleState, replicas_c: IntArray) -> None:
    """Let a reserve plugin give back what it reserved. Raises PluginFailed."""
    if plugin.undo is not None:
        _answer(plugin.name, plugin.undo, state, _shown(replicas_c))


def hear_by(plugin: PostBind, state: CycleState, replicas_c: IntArray) -> None:
    """Call a postBind plugin after a decision was committed. Raises PluginFailed."""
    _answer(plugin.name, plugin.run, state, _shown(replicas_c))


def order_by(plugin: QueueSort, state: SortState) -> FloatArray:
    """Return the instants (Unix seconds) that order waiting bindings. Raises PluginFailed."""
    instant_w = _answer(plugin.name, plugin.run, state)
    _check_array(plugin.name, instant_w, "iuf", len(state.bindings))
    (wrong,) = np.nonzero(~((instant_w >= 0) & (instant_w <= MAX_INSTANT)))
    if len(wrong):
        worst, key = instant_w[wrong[0]], state.bindings[wrong[0]].key
        rule = f"ordered binding {quoted(key)} by {worst}; instants are from 0 to {MAX_INSTANT:g}"
        raise _wrong(plugin.name, rule)
    # PostgreSQL stores microseconds.
    rounded_w: FloatArray = instant_w.astype(np.float64).round(6)
    return rounded_w


def _objection(plugin: Permit | Reserve, state: CycleState, replicas_c: IntArray) -> Reason:
    objection = _answer(plugin.name, plugin.run, state, _shown(replicas_c))
    if isinstance(objection, str) and not objection:
        return NO_REASON
    reason = _reason(plugin, objection)
    return Reason.of(ReasonCode.PLUGIN_OBJECTS, Word(plugin.name), reason)


def _shown(replicas_c: IntArray) -> IntArray:
    """Return a view that plugins cannot write to."""
    shown_c = replicas_c.view()
    shown_c.flags.writeable = False
    return shown_c


def _answer(name: str, run: Callable[..., Any], *arguments: object) -> Any:
    try:
        return run(*arguments)
    except (Exception, SystemExit) as error:
        why = quoted(str(error)[:MAX_REASON])
        raise _wrong(name, f"raised {type(error).__name__}: {why}") from error


def _check_array(name: str, array: object, kinds: str, count: int) -> None:
    word = {"b": "booleans", "iuf": "numbers"}.get(kinds, "integers")
    if not isinstance(array, np.ndarray):
        raise _wrong(name, f"answered {_kind(array)}, not an array of {word}")
    if array.dtype.kind not in kinds:
        raise _wrong(name, f"answered an array of {array.dtype}, not of {word}")
    if array.shape != (count,):
        raise _wrong(name, f"answered an array of shape {array.shape}, not {(count,)}")


def _reason(plugin: Filter | Permit | Reserve, reason: object) -> Reason:
    """Return the reason of the scheduler's own code as it is, and that of others as a sentence.

    Sentences are shown to fewer callers, because they may name clusters.
    """
    if isinstance(reason, Reason) and _is_ours(plugin):
        return reason
    text = str(reason) if isinstance(reason, Reason) else reason
    if not (isinstance(text, str) and 0 < len(text) <= MAX_REASON and text.isprintable()):
        rule = f"gave no reason, which is up to {MAX_REASON} printable characters"
        raise _wrong(plugin.name, rule)
    return Reason.of(ReasonCode.PLUGIN_TEXT, Text(text))


def _kind(answer: object) -> str:
    return "nothing" if answer is None else f"a {type(answer).__name__}"


def _wrong(name: str, what: str) -> PluginFailed:
    return PluginFailed(f"The scheduler plugin {name} failed: it {what}.")
