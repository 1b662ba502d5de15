"""The shape of a request, by which pods of promises are told apart, and their counts in reports.

Pure values. Must not know who promised what: ``federation.model.reservations`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from federation.model.resources import PODS

# The request of one replica by ascending name, without pod slots, because every pod uses one.
Shape: TypeAlias = tuple[tuple[str, int], ...]


def request_shape(request: Mapping[str, int]) -> Shape:
    """Return the shape of a request; an amount of 0 is no request."""
    return _shape_of(tuple(request.items()))


@lru_cache(maxsize=4096)
def _shape_of(items: tuple[tuple[str, int], ...]) -> Shape:
    return tuple(sorted((name, amount) for name, amount in items if amount > 0 and name != PODS))


class ReservationKey(NamedTuple):
    """The key of a reservation in a cluster; the component is "" for the only one."""

    binding: str
    component: str
    shape: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """The pods of a reservation that one report counts: on nodes, and waiting for one.

    Both are part of the capacity in the same report. ``finished`` pods of a Job use no capacity any
    more and will not return.
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
