"""What rooms were packed anew for questions: who asks the same of the same report is told the same.

Belongs to one thread. Must not outgrow its limits, nor answer for another report.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeAlias, TypeVar

from federation.capacity.cluster_room import Room, Site, late_in_order, packed_anew
from federation.capacity.pool_kinds import PoolKinds
from federation.model.reservations import Outstanding

# A thousand clusters, each without a binding and with it again by two placements: that is what a
# comparison asks for. About 15 kB each.
_MOST_CLUSTERS: Final = 1000
_MOST_PACKINGS: Final = 4

T = TypeVar("T")
_Asked: TypeAlias = Sequence[tuple[Site, Sequence[Outstanding]]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Answer(Generic[T]):
    """What one site was packed with, and what came of it."""

    kinds: PoolKinds
    site: Site
    outstanding: tuple[Outstanding, ...]
    found: T

    def is_of(self, kinds: PoolKinds, site: Site, outstanding: tuple[Outstanding, ...]) -> bool:
        return (
            self.kinds.numbers_like(kinds)
            and self.site.pools is site.pools
            and self.site.report == site.report
            and self.site.follows_claims is site.follows_claims
            and self.outstanding == outstanding
        )


class KnownPackings:
    """The packings of the clusters that were asked about last, a few of each.

    A preview packs every cluster where its binding is without it, and a second one does so again a
    moment later, when only few have reported meanwhile.
    """

    def __init__(self) -> None:
        self._rooms = _Known[Room]()
        self._late = _Known[int]()

    def packed(self, kinds: PoolKinds, every: _Asked) -> list[Room]:
        """``packed_anew`` of those that are not known."""
        found = self._rooms.answers(kinds, every, packed_anew)
        return [room if room.kinds is kinds else replace(room, kinds=kinds) for room in found]

    def late(self, kinds: PoolKinds, every: _Asked) -> list[int]:
        """``late_in_order`` of those that are not known."""
        return self._late.answers(kinds, every, late_in_order)


class _Known(Generic[T]):
    """Answers of one kind."""

    def __init__(self) -> None:
        # By the identity of pools, which the answers keep alive.
        self._known: OrderedDict[int, deque[_Answer[T]]] = OrderedDict()

    def answers(
        self, kinds: PoolKinds, every: _Asked, work_out: Callable[[PoolKinds, _Asked], list[T]]
    ) -> list[T]:
        asked = [(site, tuple(outstanding)) for site, outstanding in every]
        found = [self._find(kinds, site, outstanding) for site, outstanding in asked]
        new = [place for place, answer in enumerate(found) if answer is None]
        made = work_out(kinds, [asked[place] for place in new])
        for place, each in zip(new, made, strict=True):
            site, outstanding = asked[place]
            found[place] = answer = _Answer(
                kinds=kinds, site=site, outstanding=outstanding, found=each
            )
            self._keep(answer)
        return [answer.found for answer in found if answer is not None]

    def _find(
        self, kinds: PoolKinds, site: Site, outstanding: tuple[Outstanding, ...]
    ) -> _Answer[T] | None:
        for each in self._known.get(id(site.pools), ()):
            if each.is_of(kinds, site, outstanding):
                return each
        return None

    def _keep(self, answer: _Answer[T]) -> None:
        key = id(answer.site.pools)
        self._known.setdefault(key, deque(maxlen=_MOST_PACKINGS)).append(answer)
        self._known.move_to_end(key)
        while len(self._known) > _MOST_CLUSTERS:
            self._known.popitem(last=False)
