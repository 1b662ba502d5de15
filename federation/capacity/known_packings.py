"""What rooms were packed anew for questions: who asks the same of the same report is told the same.

Belongs to one thread. Must not outgrow its limits, nor answer for another report.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from federation.capacity.cluster_room import Room, Site, packed_anew
from federation.capacity.pool_kinds import PoolKinds
from federation.model.reservations import Outstanding

# A thousand clusters, each without a binding and with it again by two placements: that is what a
# comparison asks for. About 15 kB each.
_MOST_CLUSTERS: Final = 1000
_MOST_PACKINGS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Packed:
    """What one cluster was packed with."""

    outstanding: tuple[Outstanding, ...]
    room: Room

    def answers(self, kinds: PoolKinds, site: Site, outstanding: tuple[Outstanding, ...]) -> bool:
        room = self.room
        return (
            room.kinds.numbers_like(kinds)
            and room.pools is site.pools
            and room.report == site.report
            and room.follows_claims is site.follows_claims
            and self.outstanding == outstanding
        )


class KnownPackings:
    """The packings of the clusters that were asked about last, a few of each.

    A preview packs every cluster where its binding is without it, and a second one does so again a
    moment later, when only few have reported meanwhile.
    """

    def __init__(self) -> None:
        # By the identity of pools, which the rooms keep alive.
        self._known: OrderedDict[int, deque[_Packed]] = OrderedDict()

    def packed(
        self, kinds: PoolKinds, every: Sequence[tuple[Site, Sequence[Outstanding]]]
    ) -> list[Room]:
        """``packed_anew`` of those that are not known."""
        asked = [(site, tuple(outstanding)) for site, outstanding in every]
        found = [self._find(kinds, site, outstanding) for site, outstanding in asked]
        new = [place for place, room in enumerate(found) if room is None]
        made = dict(zip(new, packed_anew(kinds, [asked[place] for place in new]), strict=True))
        for place, room in made.items():
            self._keep(*asked[place], room)
        return [room or made[place] for place, room in enumerate(found)]

    def _find(
        self, kinds: PoolKinds, site: Site, outstanding: tuple[Outstanding, ...]
    ) -> Room | None:
        for each in self._known.get(id(site.pools), ()):
            if each.answers(kinds, site, outstanding):
                return replace(each.room, kinds=kinds)
        return None

    def _keep(self, site: Site, outstanding: tuple[Outstanding, ...], room: Room) -> None:
        key = id(site.pools)
        self._known.setdefault(key, deque(maxlen=_MOST_PACKINGS)).append(
            _Packed(outstanding=outstanding, room=room)
        )
        self._known.move_to_end(key)
        while len(self._known) > _MOST_CLUSTERS:
            self._known.popitem(last=False)
