"""What pods of promises are told apart by, and what a report counts of them.

Pure values. Must not know who promised what: ``federation.model.reservations`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from federation.model.resources import PODS

# What one replica asks for, in the order of the names: pod slots aside, as every pod takes one.
Shape: TypeAlias = tuple[tuple[str, int], ...]


def request_shape(request: Mapping[str, int]) -> Shape:
    """The shape of a request; asking for nothing of a resource is not asking for it."""
    return _shape_of(tuple(request.items()))


@lru_cache(maxsize=4096)
def _shape_of(items: tuple[tuple[str, int], ...]) -> Shape:
    return tuple(sorted((name, amount) for name, amount in items if amount > 0 and name != PODS))


class ReservationKey(NamedTuple):
    """Which reservation of a cluster: the binding's key, the component ("" for the only one)."""

    binding: str
    component: str
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """What one report counts of a reservation: pods on nodes, and pods that wait for one.

    Both are in the capacity of the same report. ``finished`` pods of a Job take no room any more
    and will not come back.
    """

    binding: str
    component: str = ""
    shape: Shape
    bound: int = 0
    unbound: int = 0
    finished: int = 0

    @property
    def key(self) -> ReservationKey:
        return ReservationKey(self.binding, self.component, self.shape)
