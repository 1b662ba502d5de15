"""The best choice of clusters under group counts: a dynamic programme over groups.

Must not know regions, capacity or Karmada: values in, positions out. Exact and polynomial while
every cluster belongs to one group a level and the levels nest; where groups cross it keeps the
most valuable states only, beyond a bound, and says that nothing is proven then.

Clusters with the same groups at every level form a class, of which any number is taken from the
most valuable on. Classes are visited so that groups open and close early. A state is how many
groups of each level were used, and which of the open ones; its row says, for every number of
clusters taken, the largest value so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from federation.model.arrays import IntArray
from federation.scheduler.fleet import Column

UNLIMITED = 2**62

_NEVER = -(2**62)
_MOST_VISITS = 20_000  # states times classes where groups cross: about a quarter of a second


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """A property that groups the candidates, and how many of its groups to use."""

    groups: Column[tuple[str, ...]]
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SearchProblem:
    """Choose ``least`` to ``most`` clusters of the largest total value; no value is negative."""

    value_k: IntArray
    levels: tuple[Level, ...]
    least: int
    most: int

    @property
    def takes_whole_classes(self) -> bool:
        """Without an upper bound on clusters it never pays to leave one of a class out."""
        return self.most >= len(self.value_k)

    @property
    def last_count(self) -> int:
        """The largest count a row tells apart; whole classes need to tell up to ``least`` only."""
        return self.least if self.takes_whole_classes else self.most


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """The chosen positions, ascending; none when no choice was found."""

    choice_k: IntArray
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Groups used per level, and those of them that later clusters can be in too."""

    used: tuple[int, ...]
    open: frozenset[tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Class:
    """Positions with the same groups, most valuable first.

    ``options`` are the ways to take some: (how many from the first on, their value). ``closing``
    are the groups that no later class has.
    """

    position_k: IntArray
    options: tuple[tuple[int, int], ...]
    groups: frozenset[tuple[int, str]]
    closing: frozenset[tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """One class visited: the states before it and, per state after it, where it may come from."""

    before: dict[_State, IntArray]
    origins: dict[_State, list[tuple[_State, bool]]]


def search(problem: SearchProblem) -> Found:
    """The most valuable choice that keeps all counts."""
    if problem.least > min(problem.most, len(problem.value_k)):
        return Found(choice_k=np.array([], dtype=np.int64), proven=True)
    classes = _classes(problem)
    most_states = max(_MOST_VISITS // len(classes), 1) if _cross(classes) else None
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
        return Found(choice_k=np.array([], dtype=np.int64), proven=proven)
    choice_k = _retraced(problem, classes, steps, best_state, best_count)
    return Found(choice_k=choice_k, proven=proven)


def _classes(problem: SearchProblem) -> list[_Class]:
    """Clusters by their groups; levels with fewer groups sort first, so that nested ones nest."""
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
    """Take none of a class, or some of it, from every state."""
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
            # More than enough is as good as enough.
            used[level] = min(used[level], bound.least)
    return _State(used=tuple(used), open=(state.open | visited.groups) - visited.closing)


def _with_some(problem: SearchProblem, visited: _Class, row_sn: IntArray) -> IntArray:
    """The best value for every count when some of the class is taken.

    With whole classes the last count stands for that many and more.
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
    known_n = rows.get(state)
    rows[state] = row_n if known_n is None else np.maximum(known_n, row_n)


def _cross(classes: Sequence[_Class]) -> bool:
    """Whether two groups of one level are ever open at once, so that states may multiply."""
    opened: frozenset[tuple[int, str]] = frozenset()
    for visited in classes:
        opened = (opened | visited.groups) - visited.closing
        levels = [level for level, _ in opened]
        if len(set(levels)) < len(levels):
            return True
    return False


def _bounded(rows: dict[_State, IntArray], most: int | None) -> tuple[dict[_State, IntArray], bool]:
    """The most valuable states, at most so many; whether that is all of them."""
    alive = {state: row_n for state, row_n in rows.items() if row_n.max() >= 0}
    if most is None or len(alive) <= most:
        return alive, True
    ranked = sorted(alive, key=lambda state: -int(alive[state].max()))
    return {state: alive[state] for state in ranked[:most]}, False


def _retraced(
    problem: SearchProblem,
    classes: Sequence[_Class],
    steps: Sequence[_Step],
    state: _State,
    count: int,
) -> IntArray:
    """Walk back from the best end along a way that led to its value."""
    chosen: list[int] = []
    for visited, step in zip(reversed(classes), reversed(steps), strict=True):
        ways = [
            (int(step.before[origin][before]) + worth, before, taken, origin)
            for origin, entered in step.origins[state]
            for taken, worth in (visited.options if entered else ((0, 0),))
            for before in _counts_before(problem, count, taken)
        ]
        _, count, taken, state = max(ways, key=lambda way: way[0])
        chosen.extend(visited.position_k[:taken].tolist())
    return np.array(sorted(chosen), dtype=np.int64)


def _counts_before(problem: SearchProblem, count: int, taken: int) -> range:
    """From which counts taking so many leads to this count."""
    first = max(count - taken, 0)
    if problem.takes_whole_classes and count == problem.last_count:
        return range(first, count + 1)
    return range(first, first + 1) if taken <= count else range(0)
