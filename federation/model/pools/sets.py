"""The whole sets of a workload of several components that fit into cells: first fit, set by set.

Pure. Every node counts with exactly the minimum of its cell, so that the answer is a packing. Must
not look at single nodes: identical ones are handled together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import per_replica
from federation.model.pools.cell_order import smallest_first
from federation.model.pools.matching import Match, keys_not_carried, pool_match, untold_by_pools
from federation.model.pools.values import Pools
from federation.model.reasons import NO_REASON, Reason
from federation.model.workload import Component

# The kind of a node on which no replica of any component fits any more.
_FULL: Final = -1
# Steps after which sets must fit on single nodes, because a caller waits for the answer.
MAX_STEPS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SetEstimate:
    """Sets that surely fit beside each other; unknown if not ``answered``: ``reason`` says why."""

    sets: int
    answered: bool = True
    reason: Reason = NO_REASON


def sets_that_fit(
    pools: Pools, components: Sequence[Component], limit: int = MAX_REPLICAS
) -> SetEstimate:
    """Return how many whole sets fit, at most ``limit``: set by set, component by component.

    The smallest cells are filled first. A set without replicas fits 0 times. If that takes too
    long, the rest are sets that fit on a single node.
    """
    components = alike_together(components)
    verdicts = [
        [
            pool_match(pool, pools.label_keys, component.requirements.node_claim)
            for component in components
        ]
        for pool in pools.pools
    ]
    if any(Match.UNKNOWN in row for row in verdicts):
        claims = [component.requirements.node_claim for component in components]
        keys = {key for claim in claims for key in keys_not_carried(pools.label_keys, claim)}
        return SetEstimate(sets=0, answered=False, reason=untold_by_pools(tuple(sorted(keys))))
    if not components:
        return SetEstimate(sets=0)
    kinds = _NodeKinds(pools.cells.resources, components)
    runs = _FirstFit(kinds, [component.replicas for component in components])
    for cell in smallest_first(pools.cells, kinds.demanded).tolist():
        suits = [verdict is Match.YES for verdict in verdicts[int(pools.cells.pool_k[cell])]]
        kind = kinds.number(tuple(suits), tuple(pools.cells.min_rk[:, cell].tolist()))
        runs.append(kind, int(pools.cells.count_k[cell]))
    return SetEstimate(sets=runs.count(limit))


def alike_together(components: Sequence[Component]) -> list[Component]:
    """Return the components with replicas; neighbours with equal requirements are joined."""
    joined: list[Component] = []
    for component in components:
        if component.replicas <= 0:
            continue
        if joined and joined[-1].requirements == component.requirements:
            joined[-1] = replace(joined[-1], replicas=joined[-1].replicas + component.replicas)
        else:
            joined.append(component)
    return joined


class _NodeKinds:
    """Kinds of nodes as numbers: the components that suit a node, and its free amounts."""

    def __init__(self, resources: tuple[str, ...], components: Sequence[Component]) -> None:
        amounts = [per_replica(component.requirements.request) for component in components]
        self.demanded = {name: amount for request in amounts for name, amount in request.items()}
        # A component that requests a resource of no node fits nowhere.
        self._exists = [request.keys() <= set(resources) for request in amounts]
        self._used = [tuple(request.get(name, 0) for name in resources) for request in amounts]
        self._numbers: dict[tuple[tuple[bool, ...], tuple[int, ...]], int] = {}
        self._nodes: list[tuple[tuple[bool, ...], tuple[int, ...]]] = []
        self._after: dict[tuple[int, int, int], int] = {}
        self._whole: dict[tuple[int, tuple[int, ...]], tuple[int, tuple[int, ...]]] = {}
        # By kind and component: replicas that fit on a node.
        self.fits: list[tuple[int, ...]] = []

    def number(self, suits: tuple[bool, ...], free: tuple[int, ...]) -> int:
        """Return the kind of a node, _FULL when nothing fits on it."""
        cached = self._numbers.get((suits, free))
        if cached is not None:
            return cached
        fits = tuple(
            min(amount // used for amount, used in zip(free, used_by, strict=True) if used)
            if may and exists
            else 0
            for may, exists, used_by in zip(suits, self._exists, self._used, strict=True)
        )
        number = len(self.fits) if any(fits) else _FULL
        if number != _FULL:
            self.fits.append(fits)
            self._nodes.append((suits, free))
        self._numbers[suits, free] = number
        return number

    def after(self, kind: int, component: int, replicas: int) -> int:
        """Return the kind of a node after it took replicas of a component."""
        key = kind, component, replicas
        if key not in self._after:
            suits, free = self._nodes[kind]
            used = self._used[component]
            remaining = tuple(
                amount - replicas * per_one for amount, per_one in zip(free, used, strict=True)
            )
            self._after[key] = self.number(suits, remaining)
        return self._after[key]

    def whole(
        self, kind: int, parts: tuple[int, ...], replicas: Sequence[int]
    ) -> tuple[int, tuple[int, ...]]:
        """Return how many times components of a set fit on a node together, and what one time
        takes.

        The number is 0 if they do not fit once.
        """
        key = kind, parts
        if key not in self._whole:
            used = [self._used[part] for part in parts]
            times = [replicas[part] for part in parts]
            taken = tuple(
                sum(amount * number for amount, number in zip(column, times, strict=True))
                for column in zip(*used, strict=True)
            )
            free = self._nodes[kind][1]
            fit = min(
                have // per_time for have, per_time in zip(free, taken, strict=True) if per_time
            )
            self._whole[key] = fit, taken
        return self._whole[key]

    def after_sets(self, kind: int, taken: tuple[int, ...], sets: int) -> int:
        """Return the kind of a node after it took an amount so many times."""
        suits, free = self._nodes[kind]
        return self.number(
            suits, tuple(have - sets * per_set for have, per_set in zip(free, taken, strict=True))
        )


class _FirstFit:
    """Runs of nodes of one kind, (kind, nodes), in the order of tries, without full nodes.

    The effect of a set on the runs depends on their kinds, and on their lengths only where a run
    ends. If the same kinds have returned twice by the same steps, the steps are repeated at once
    until a run would end. Every step is a packing, whatever the lengths of the runs are.
    """

    def __init__(self, kinds: _NodeKinds, replicas: Sequence[int]) -> None:
        self._kinds = kinds
        self._replicas = replicas
        self._runs: list[tuple[int, int]] = []

    def append(self, kind: int, nodes: int) -> None:
        """Append nodes to try after the others."""
        _append(self._runs, kind, nodes)

    def count(self, limit: int) -> int:
        """Take sets until one does not fit, at most ``limit``; return how many."""
        sets = 0
        seen: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        cycles: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        for _ in range(MAX_STEPS):
            sets += self._take_in_place(limit - sets)
            kinds = tuple([kind for kind, _ in self._runs])
            lengths = [nodes for _, nodes in self._runs]
            if kinds in seen:
                sets_then, lengths_then = seen[kinds]
                shrunk = [then - now for then, now in zip(lengths_then, lengths, strict=True)]
                cycle = sets - sets_then, shrunk
                if cycles.get(kinds) == cycle:
                    sets += self._repeat(*cycle, limit=limit - sets)
                    lengths = [nodes for _, nodes in self._runs]
                    seen.clear()
                    cycles.clear()
                cycles[kinds] = cycle
            seen[kinds] = sets, lengths
            if sets == limit or not self._take_set():
                return sets
            sets += 1
        return min(limit, sets + self._on_single_nodes())

    def _take_in_place(self, limit: int) -> int:
        """Take sets while every component stays on its node; return how many."""
        standing: dict[int, list[int]] = {}
        fits = self._kinds.fits
        for component in range(len(self._replicas)):
            place = next(
                (place for place, (kind, _) in enumerate(self._runs) if fits[kind][component]), None
            )
            if place is None:
                return 0
            standing.setdefault(place, []).append(component)
        wholes = {
            place: self._kinds.whole(self._runs[place][0], tuple(parts), self._replicas)
            for place, parts in standing.items()
        }
        sets = min(limit, *(fit for fit, _ in wholes.values()))
        if sets == 0:
            return 0
        runs: list[tuple[int, int]] = []
        last = 0
        for place in sorted(wholes):
            kind, nodes = self._runs[place]
            runs.extend(self._runs[last:place])
            _append(runs, self._kinds.after_sets(kind, wholes[place][1], sets), 1)
            _append(runs, kind, nodes - 1)
            last = place + 1
        runs.extend(self._runs[last:])
        self._runs = runs
        return sets

    def _on_single_nodes(self) -> int:
        """Return the sets that fit beside each other, each on one node."""
        all_components = tuple(range(len(self._replicas)))
        return sum(
            nodes * self._kinds.whole(kind, all_components, self._replicas)[0]
            for kind, nodes in self._runs
            if all(self._kinds.fits[kind])
        )

    def _repeat(self, sets: int, shrunk: Sequence[int], *, limit: int) -> int:
        """Repeat steps that took ``sets`` sets and shortened runs by ``shrunk``; return the sets
        taken.

        They are repeated as often as every run that shrinks keeps a node.
        """
        runs = list(zip(self._runs, shrunk, strict=True))
        times = min(limit // sets, *((nodes - 1) // by for (_, nodes), by in runs if by > 0))
        self._runs = [(kind, nodes - by * times) for (kind, nodes), by in runs]
        return sets * times

    def _take_set(self) -> bool:
        return all(
            self._take(component, replicas) for component, replicas in enumerate(self._replicas)
        )

    def _take(self, component: int, replicas: int) -> bool:
        """Put replicas on the first nodes with capacity; return whether all of them fit."""
        runs: list[tuple[int, int]] = []
        remaining = replicas
        for place, (kind, nodes) in enumerate(self._runs):
            if remaining == 0:
                runs.extend(self._runs[place:])
                break
            fit = self._kinds.fits[kind][component]
            if fit == 0:
                runs.append((kind, nodes))
                continue
            taken = min(remaining, fit * nodes)
            remaining -= taken
            full, rest = divmod(taken, fit)
            _append(runs, self._kinds.after(kind, component, fit), full)
            if rest:
                _append(runs, self._kinds.after(kind, component, rest), 1)
            _append(runs, kind, nodes - full - (1 if rest else 0))
        self._runs = runs
        return remaining == 0


def _append(runs: list[tuple[int, int]], kind: int, nodes: int) -> None:
    if nodes == 0 or kind == _FULL:
        return
    if runs and runs[-1][0] == kind:
        nodes += runs.pop()[1]
    runs.append((kind, nodes))
