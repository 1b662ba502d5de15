"""The best choice of clusters under group counts: a dynamic programme over groups.

Must not know regions, capacity or Karmada: values in, positions out. The search is exact and
polynomial if every cluster belongs to one group a level and the levels nest. If groups cross, only
the most valuable states are kept beyond a bound, and the result is not proven.

Clusters with the same groups at every level form a class, of which the most valuable ones are taken
first. Classes are visited in an order that opens and closes groups early. A state is the number of
groups used at each level, and the open groups among them. Its row holds the highest value for every
number of clusters taken (axis n).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from federation.model.arrays import IntArray
from federation.scheduler.fleet import Column

UNLIMITED = 2**62

_NEVER = -(2**62)
# States times classes if groups cross: about 0.25 s of CPU.
_MAX_VISITS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """A property that groups the candidates, and the bounds of the number of groups to use."""

    groups: Column[tuple[str, ...]]
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchProblem:
    """Choose ``least`` to ``most`` clusters of the highest total value; no value is negative."""

    value_k: IntArray
    levels: tuple[Level, ...]
    least: int
    most: int

    @property
    def takes_whole_classes(self) -> bool:
        """Return whether all of a class are taken: without an upper bound it never pays to omit
        one.
        """
        return self.most >= len(self.value_k)

    @property
    def last_count(self) -> int:
        """Return the highest count of a row; for whole classes counts above ``least`` are one."""
        return self.least if self.takes_whole_classes else self.most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchResult:
    """The chosen positions, ascending; empty when no choice was found."""

    choice_k: IntArray
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Groups used per level, and the open ones: later clusters belong to them too."""

    used: tuple[int, ...]
    open: frozenset[tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Class:
    """Positions with the same groups, most valuable first.

    ``options`` are pairs (clusters taken from the first one on, their value). No later class has
    the groups in ``closing``.
    """

    position_k: IntArray
    options: tuple[tuple[int, int], ...]
    groups: frozenset[tuple[int, str]]
    closing: frozenset[tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """One visited class: the states before it, and the origins of each state after it."""

    before: dict[_State, IntArray]
    origins: dict[_State, list[tuple[_State, bool]]]


def search(problem: SearchProblem) -> SearchResult:
    """Return the most valuable choice that keeps all counts."""
    if problem.least > min(problem.most, len(problem.value_k)):
        return SearchResult(choice_k=np.array([], dtype=np.int64), proven=True)
    classes = _classes(problem)
    most_states = max(_MAX_VISITS // len(classes), 1) if _cross(classes) else None
    row_n = np.full(problem.last_count + 1, _NEVER, dtype=np.int64)
    row_n[0] = 0
    start = _State(used=(0,) * len(problem.levels), open=frozenset())
    rows = {start: row_n}
    steps: list[_Step] = []
    proven = True
    for visited in classes:
        step, rows = _visit(problem, visited, rows)
        steps.append(step)
        rows, kept_all = _bounded(rows, most_states)
        proven = proven and kept_all
    best_state, best_count, best = start, 0, _NEVER
    for state, state_row_n in rows.items():
        if any(u < level.least for u, level in zip(state.used, problem.levels, strict=True)):
            continue
        count = problem.least + int(np.argmax(state_row_n[problem.least :]))
        if state_row_n[count] > best:
            best_state, best_count, best = state, count, int(state_row_n[count])
    if best < 0:
        return SearchResult(choice_k=np.array([], dtype=np.int64), proven=proven)
    choice_k = _retraced(problem, classes, steps, best_state, best_count)
    return SearchResult(choice_k=choice_k, proven=proven)


def _classes(problem: SearchProblem) -> list[_Class]:
    """Return the classes; levels with fewer groups sort first, so that nested levels nest."""
    counts = [len(np.unique(level.groups.code_c)) for level in problem.levels]
    depth = sorted(range(len(counts)), key=counts.__getitem__)
    members: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    codes = [problem.levels[level].groups.code_c.tolist() for level in depth]
    values = [problem.levels[level].groups.values for level in depth]
    for position in range(len(problem.value_k)):
        signature = tuple(value[code[position]] for value, code in zip(values, codes, strict=True))
        members.setdefault(signature, []).append(position)
    signatures = sorted(members)
    group_sets = [
        frozenset(
            (level, name) for level, names in zip(depth, signature, strict=True) for name in names
        )
        for signature in signatures
    ]
    last_seen = {group: i for i, groups in enumerate(group_sets) for group in groups}
    return [
        _class_of(
            problem,
            np.array(members[signature], dtype=np.int64),
            groups,
            frozenset(group for group in groups if last_seen[group] == i),
        )
        for i, (signature, groups) in enumerate(zip(signatures, group_sets, strict=True))
    ]


def _class_of(
    problem: SearchProblem,
    position_k: IntArray,
    groups: frozenset[tuple[int, str]],
    closing: frozenset[tuple[int, str]],
) -> _Class:
    value_k = problem.value_k[position_k]
    by_value = np.argsort(-value_k, kind="stable")
    options = list(enumerate(np.cumsum(value_k[by_value]).tolist(), start=1))
    options = options[-1:] if problem.takes_whole_classes else options[: problem.most]
    return _Class(
        position_k=position_k[by_value], options=tuple(options), groups=groups, closing=closing
    )


def _visit(
    problem: SearchProblem, visited: _Class, rows: dict[_State, IntArray]
) -> tuple[_Step, dict[_State, IntArray]]:
    """From every state, take none of a class, or one of its options."""
    after: dict[_State, IntArray] = {}
    origins: dict[_State, list[tuple[_State, bool]]] = {}
    states = list(rows)
    taking_sn = _with_some(problem, visited, np.stack([rows[state] for state in states]))
    for state, taking_n in zip(states, taking_sn, strict=True):
        skipped = _State(used=state.used, open=state.open - visited.closing)
        _merge(after, skipped, rows[state])
        origins.setdefault(skipped, []).append((state, False))
        taken = _entered(problem, state, visited)
        if all(u <= level.most for u, level in zip(taken.used, problem.levels, strict=True)):
            _merge(after, taken, taking_n)
            origins.setdefault(taken, []).append((state, True))
    return _Step(before=rows, origins=origins), after


def _entered(problem: SearchProblem, state: _State, visited: _Class) -> _State:
    used = list(state.used)
    for level, _ in visited.groups - state.open:
        used[level] += 1
    for level, bound in enumerate(problem.levels):
        if bound.most == UNLIMITED:
            # Without an upper bound, all counts above the minimum are alike.
            used[level] = min(used[level], bound.least)
    return _State(used=tuple(used), open=(state.open | visited.groups) - visited.closing)


def _with_some(problem: SearchProblem, visited: _Class, row_sn: IntArray) -> IntArray:
    """Return the highest value for every count if an option of the class is taken (axes s, n).

    With whole classes the last count stands for itself and all higher counts.
    """
    taking_sn = np.full_like(row_sn, _NEVER)
    last = row_sn.shape[1] - 1
    for taken, worth in visited.options:
        step = min(taken, last)
        moved_sn = row_sn[:, : last + 1 - step] + worth
        np.maximum(taking_sn[:, step:], moved_sn, out=taking_sn[:, step:])
        if problem.takes_whole_classes:
            at_end_s = row_sn[:, last - step :].max(axis=1) + worth
            np.maximum(taking_sn[:, last], at_end_s, out=taking_sn[:, last])
    return taking_sn


def _merge(rows: dict[_State, IntArray], state: _State, row_n: IntArray) -> None:
    earlier_n = rows.get(state)
    rows[state] = row_n if earlier_n is None else np.maximum(earlier_n, row_n)


def _cross(classes: Sequence[_Class]) -> bool:
    """Return whether two groups of one level are ever open at once: then states may multiply."""
    opened: frozenset[tuple[int, str]] = frozenset()
    for visited in classes:
        opened = (opened | visited.groups) - visited.closing
        levels = [level for level, _ in opened]
        if len(set(levels)) < len(levels):
            return True
    return False


def _bounded(
    rows: dict[_State, IntArray], limit: int | None
) -> tuple[dict[_State, IntArray], bool]:
    """Return the most valuable states, up to a limit, and whether those are all."""
    alive = {state: row_n for state, row_n in rows.items() if row_n.max() >= 0}
    if limit is None or len(alive) <= limit:
        return alive, True
    ranked = sorted(alive, key=lambda state: -int(alive[state].max()))
    return {state: alive[state] for state in ranked[:limit]}, False


def _retraced(
    problem: SearchProblem,
    classes: Sequence[_Class],
    steps: Sequence[_Step],
    state: _State,
    count: int,
) -> IntArray:
    """Return the choice that leads to the best state and count, from the last class backwards."""
    chosen: list[int] = []
    for visited, step in zip(reversed(classes), reversed(steps), strict=True):
        ways = [
            (int(step.before[origin][count_before]) + worth, count_before, taken, origin)
            for origin, entered in step.origins[state]
            for taken, worth in (visited.options if entered else ((0, 0),))
            for count_before in _counts_before(problem, count, taken)
        ]
        _, count, taken, state = max(ways, key=lambda way: way[0])
        chosen.extend(visited.position_k[:taken].tolist())
    return np.array(sorted(chosen), dtype=np.int64)


def _counts_before(problem: SearchProblem, count: int, taken: int) -> range:
    """Return the counts from which taking so many clusters leads to this count."""
    first = max(count - taken, 0)
    if problem.takes_whole_classes and count == problem.last_count:
        return range(first, count + 1)
    return range(first, first + 1) if taken <= count else range(0)
