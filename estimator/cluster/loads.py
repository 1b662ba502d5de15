"""What the pods on every node sum to, in columns: a pod costs a few numbers written in place.

Belongs to the cache and its loop. Must not know which pods count, nor what else nodes are.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from estimator.nodes import Pod
from federation.model.arrays import IntArray
from federation.model.resources import MAX_AMOUNT, PODS

# Exact where 64 bits are not enough: broken pods ask for as much as an amount can be.
_Column: TypeAlias = "array[int] | list[int]"

_BYTES: Final = 8
# So many more than twice the places there were may be taken before they are worth arranging.
_SPARE_PLACES: Final = 1_024


class NodeLoads:
    """Sums by node and resource.

    The nodes of the newest ``arrange`` have the first places, in its order; behind them are
    others that pods are bound to.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._rows = 0
        self._most_places = _SPARE_PLACES
        self._requested: dict[str, _Column] = {PODS: array("q")}
        self._nonzero: dict[str, _Column] = {}

    @property
    def is_sparse(self) -> bool:
        """Whether to arrange them anew: pods may name nodes that never were, ever new ones."""
        return len(self._places) > self._most_places

    def add(self, pod: Pod, sign: int) -> None:
        """Count ``pod`` in (+1) or out (-1) on its node."""
        place = self._places.get(pod.node)
        if place is None:
            place = self._new_place(pod.node)
        self._requested[PODS][place] += sign
        self._accumulate(self._requested, place, pod.request, sign)
        self._accumulate(self._nonzero, place, pod.nonzero, sign)

    def arrange(self, names: Sequence[str]) -> None:
        """Make these the rows; nodes that are not among them stay behind as long as they have pods.

        A resource that no pod asks for is no longer there.
        """
        pods = self._requested[PODS]
        known = set(names)
        homeless = [
            name for name, place in self._places.items() if pods[place] and name not in known
        ]
        order = [*names, *homeless]
        places = [self._places.get(name) for name in order]
        for columns in (self._requested, self._nonzero):
            for name, column in list(columns.items()):
                columns[name] = _moved(column, places)
                if name != PODS and not any(columns[name]):
                    del columns[name]
        self._places = {name: place for place, name in enumerate(order)}
        self._rows = len(names)
        self._most_places = 2 * len(order) + _SPARE_PLACES

    def requested(self) -> dict[str, IntArray]:
        """Sums of the requests and of the pods themselves, one read-only array a resource."""
        return self._copied(self._requested)

    def nonzero(self) -> dict[str, IntArray]:
        """Sums as scoring counts them."""
        return self._copied(self._nonzero)

    def homeless(self) -> dict[str, int]:
        """What is requested behind the rows, by resource."""
        sums = {name: sum(column[self._rows :]) for name, column in self._requested.items()}
        return {name: amount for name, amount in sums.items() if amount}

    def _new_place(self, node: str) -> int:
        place = self._places[node] = len(self._places)
        for columns in (self._requested, self._nonzero):
            for column in columns.values():
                column.append(0)
        return place

    def _accumulate(
        self, columns: dict[str, _Column], place: int, amounts: Mapping[str, int], sign: int
    ) -> None:
        for name, amount in amounts.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = array("q", bytes(_BYTES * len(self._places)))
            try:
                column[place] += sign * amount
            except OverflowError:
                column = columns[name] = list(column)
                column[place] += sign * amount

    def _copied(self, columns: Mapping[str, _Column]) -> dict[str, IntArray]:
        return {name: _first(columns[name], self._rows) for name in sorted(columns)}


def _first(column: _Column, rows: int) -> IntArray:
    """A copy; amounts stop at MAX_AMOUNT, so that differences of two of them stay int64."""
    if isinstance(column, list):
        copy = np.array([min(amount, MAX_AMOUNT) for amount in column[:rows]], dtype=np.int64)
    else:
        copy = np.array(column[:rows], dtype=np.int64)
    copy.flags.writeable = False
    return copy


def _moved(column: _Column, places: Sequence[int | None]) -> _Column:
    amounts = (column[place] if place is not None else 0 for place in places)
    return list(amounts) if isinstance(column, list) else array("q", amounts)
