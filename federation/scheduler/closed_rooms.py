"""Room that is kept for earmarks bit by bit: where nothing more is for others, and what still is.

Must not promise anything. Live decisions and simulations keep room by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.capacity.cluster_room import Room
from federation.capacity.node_sizes import kinds_for, most_elsewhere
from federation.model.arrays import BoolArray, IntArray
from federation.model.cluster import ClusterState
from federation.model.component_sets import shape_of
from federation.model.placement import Binding
from federation.scheduler.promisable import requirements_of


class ClosedRooms:
    """By position of a cluster, the kinds of pools where all that is free is kept; None: all."""

    def __init__(self) -> None:
        self._kinds: dict[int, BoolArray | None] = {}

    def close(self, waiting: Binding, rooms: Iterable[tuple[int, Room | None]]) -> None:
        """What is free in these rooms is kept, on nodes that could hold a replica of a binding."""
        for position, room in rooms:
            if room is None:
                self._kinds[position] = None
                continue
            kinds_q = kinds_for(room, requirements_of(waiting))
            before_q = self._kinds.get(position, kinds_q)
            self._kinds[position] = None if before_q is None else kinds_q | before_q

    @property
    def positions(self) -> Iterable[int]:
        return self._kinds

    def limit(self, left_c: IntArray, binding: Binding, position: int, room: Room | None) -> None:
        """Leave to a binding what fits on other nodes of the cluster; nothing where it goes there
        in sets of components.
        """
        kinds_q = self._kinds[position]
        most = 0
        if room is not None and kinds_q is not None:
            if not kinds_q[room.site.kind_p].any():
                return
            if not binding.components:
                most = most_elsewhere(room, binding.requirements, kinds_q)
        left_c[position] = min(int(left_c[position]), most)


def could_hold(binding: Binding, state: ClusterState) -> bool:
    """Whether the cluster as a whole, all of it free, could hold a replica or set."""
    most = state.report.summary.allocatable if state.report else {}
    return all(most.get(name, 0) >= amount for name, amount in shape_of(binding).request.items())
