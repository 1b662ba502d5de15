"""How many whole sets of a workload of several components fit into cells: first fit, set by set.

Pure. Takes the cells as what they surely have, nodes of exactly their minimums, so that the answer
is a packing. Must not look at single nodes: identical ones are taken together.
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
# Steps after which a set is only looked for on single nodes: whoever asks is waiting.
MOST_STEPS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SetEstimate:
    """Sets that surely fit beside each other; unknown when not answered: ``reason`` says why."""

    sets: int
    answered: bool = True
    reason: Reason = NO_REASON


def sets_that_fit(
    pools: Pools, components: Sequence[Component], most: int = MAX_REPLICAS
) -> SetEstimate:
    """Whole sets, counted up to ``most``: one after the other, component by component in order,
    into the smallest cells first. A set without replicas fits no times.

    Where that takes too long, the rest are sets that fit on a single node.
    """
    components = alike_together(components)
    verdicts = [
        [pool_match(pool, pools.label_keys, each.requirements.node_claim) for each in components]
        for pool in pools.pools
    ]
    if any(Match.UNKNOWN in row for row in verdicts):
        claims = [each.requirements.node_claim for each in components]
        keys = {key for claim in claims for key in keys_not_carried(pools.label_keys, claim)}
        return SetEstimate(sets=0, answered=False, reason=untold_by_pools(tuple(sorted(keys))))
    if not components:
        return SetEstimate(sets=0)
    kinds = _NodeKinds(pools.cells.resources, components)
    runs = _FirstFit(kinds, [each.replicas for each in components])
    for cell in smallest_first(pools.cells, kinds.demanded).tolist():
        suits = [verdict is Match.YES for verdict in verdicts[int(pools.cells.pool_k[cell])]]
        kind = kinds.number(tuple(suits), tuple(pools.cells.min_rk[:, cell].tolist()))
        runs.append(kind, int(pools.cells.count_k[cell]))
    return SetEstimate(sets=runs.count(most))


def alike_together(components: Sequence[Component]) -> list[Component]:
    """The components that have replicas, neighbours that ask for the same as one."""
    joined: list[Component] = []
    for each in components:
        if each.replicas <= 0:
            continue
        if joined and joined[-1].requirements == each.requirements:
            joined[-1] = replace(joined[-1], replicas=joined[-1].replicas + each.replicas)
        else:
            joined.append(each)
    return joined


class _NodeKinds:
    """Kinds of nodes as numbers: which components suit a node, and what it has free."""

    def __init__(self, resources: tuple[str, ...], components: Sequence[Component]) -> None:
        amounts = [per_replica(each.requirements.request) for each in components]
        self.demanded = {name: amount for each in amounts for name, amount in each.items()}
        # A component that asks for what no node has fits nowhere.
        self._exists = [each.keys() <= set(resources) for each in amounts]
        self._used = [tuple(each.get(name, 0) for name in resources) for each in amounts]
        self._numbers: dict[tuple[tuple[bool, ...], tuple[int, ...]], int] = {}
        self._nodes: list[tuple[tuple[bool, ...], tuple[int, ...]]] = []
        self._after: dict[tuple[int, int, int], int] = {}
        self._whole: dict[tuple[int, tuple[int, ...]], tuple[int, tuple[int, ...]]] = {}
        # By kind and component: replicas that fit on a node.
        self.fits: list[tuple[int, ...]] = []

    def number(self, suits: tuple[bool, ...], free: tuple[int, ...]) -> int:
        """The kind of a node, _FULL when nothing fits on it."""
        known = self._numbers.get((suits, free))
        if known is not None:
            return known
        fits = tuple(
            min(amount // used for amount, used in zip(free, each, strict=True) if used)
            if may and exists
            else 0
            for may, exists, each in zip(suits, self._exists, self._used, strict=True)
        )
        number = len(self.fits) if any(fits) else _FULL
        if number != _FULL:
            self.fits.append(fits)
            self._nodes.append((suits, free))
        self._numbers[suits, free] = number
        return number

    def after(self, kind: int, component: int, replicas: int) -> int:
        """What a node becomes when it takes so many replicas of a component."""
        key = kind, component, replicas
        if key not in self._after:
            suits, free = self._nodes[kind]
            used = self._used[component]
            left = tuple(amount - replicas * each for amount, each in zip(free, used, strict=True))
            self._after[key] = self.number(suits, left)
        return self._after[key]

    def whole(
        self, kind: int, parts: tuple[int, ...], replicas: Sequence[int]
    ) -> tuple[int, tuple[int, ...]]:
        """How many times such components of a set fit on a node together, and what a time takes.

        At least once, or 0.
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
            fit = min(have // each for have, each in zip(free, taken, strict=True) if each)
            self._whole[key] = fit, taken
        return self._whole[key]

    def after_sets(self, kind: int, taken: tuple[int, ...], sets: int) -> int:
        """What a node becomes when it takes so many times as much."""
        suits, free = self._nodes[kind]
        return self.number(
            suits, tuple(have - sets * each for have, each in zip(free, taken, strict=True))
        )


class _FirstFit:
    """Nodes as runs of one kind, (kind, nodes), in the order they are tried, without full ones.

    What a set does to the runs depends on their kinds, and on their lengths only where one ends.
    So when the same kinds have come back twice in the same way, that way is gone at once as often
    as no run ends by it. Every step of it is a packing, whatever the runs' lengths were.
    """

    def __init__(self, kinds: _NodeKinds, replicas: Sequence[int]) -> None:
        self._kinds = kinds
        self._replicas = replicas
        self._runs: list[tuple[int, int]] = []

    def append(self, kind: int, nodes: int) -> None:
        """Nodes to try after the others."""
        _append(self._runs, kind, nodes)

    def count(self, most: int) -> int:
        """Sets taken until one does not fit, at most ``most``."""
        sets = 0
        seen: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        cycles: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        for _ in range(MOST_STEPS):
            sets += self._take_in_place(most - sets)
            kinds = tuple([kind for kind, _ in self._runs])
            lengths = [nodes for _, nodes in self._runs]
            if kinds in seen:
                sets_then, lengths_then = seen[kinds]
                shrunk = [then - now for then, now in zip(lengths_then, lengths, strict=True)]
                cycle = sets - sets_then, shrunk
                if cycles.get(kinds) == cycle:
                    sets += self._repeat(*cycle, most=most - sets)
                    lengths = [nodes for _, nodes in self._runs]
                    seen.clear()
                    cycles.clear()
                cycles[kinds] = cycle
            seen[kinds] = sets, lengths
            if sets == most or not self._take_set():
                return sets
            sets += 1
        return min(most, sets + self._on_single_nodes())

    def _take_in_place(self, most: int) -> int:
        """Take as many sets as leave every component on the node it stands on; how many."""
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
        sets = min(most, *(fit for fit, _ in wholes.values()))
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
        """Sets that fit beside each other, each on one node."""
        every = tuple(range(len(self._replicas)))
        return sum(
            nodes * self._kinds.whole(kind, every, self._replicas)[0]
            for kind, nodes in self._runs
            if all(self._kinds.fits[kind])
        )

    def _repeat(self, sets: int, shrunk: Sequence[int], *, most: int) -> int:
        """Do again what took ``sets`` sets and made runs so much shorter; how many sets that took.

        As often as possible with every run that gets shorter keeping a node.
        """
        runs = list(zip(self._runs, shrunk, strict=True))
        times = min(most // sets, *((nodes - 1) // by for (_, nodes), by in runs if by > 0))
        self._runs = [(kind, nodes - by * times) for (kind, nodes), by in runs]
        return sets * times

    def _take_set(self) -> bool:
        return all(
            self._take(component, replicas) for component, replicas in enumerate(self._replicas)
        )

    def _take(self, component: int, replicas: int) -> bool:
        """Put replicas of one component on the first nodes that have room; whether all found it."""
        runs: list[tuple[int, int]] = []
        left = replicas
        for place, (kind, nodes) in enumerate(self._runs):
            if left == 0:
                runs.extend(self._runs[place:])
                break
            fit = self._kinds.fits[kind][component]
            if fit == 0:
                runs.append((kind, nodes))
                continue
            taken = min(left, fit * nodes)
            left -= taken
            full, rest = divmod(taken, fit)
            _append(runs, self._kinds.after(kind, component, fit), full)
            if rest:
                _append(runs, self._kinds.after(kind, component, rest), 1)
            _append(runs, kind, nodes - full - (1 if rest else 0))
        self._runs = runs
        return left == 0


def _append(runs: list[tuple[int, int]], kind: int, nodes: int) -> None:
    if nodes == 0 or kind == _FULL:
        return
    if runs and runs[-1][0] == kind:
        nodes += runs.pop()[1]
    runs.append((kind, nodes))
