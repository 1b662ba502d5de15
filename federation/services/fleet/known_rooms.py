"""The rooms of clusters that changed since the last snapshot: made from what is known of them.

Must not pack: a room that has to be packed anew is told apart from one that is known.
"""

from __future__ import annotations

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.fleet_rooms import UnpackedRoom
from federation.capacity.ledger import ClusterLedger
from federation.model.cluster import CapacityReport
from federation.model.pools.values import Pools
from federation.model.reported_pools import pools_of
from federation.services.fleet.rooms_ahead import Roomed, RoomsAhead


class KnownRooms:
    """By cluster; pools are kept as arrays. ``changed``: where something else is outstanding than
    the last snapshot shows.
    """

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self.ahead = RoomsAhead()
        self._pools: dict[str, Pools] = {}
        self._rooms: dict[str, Roomed] = {}
        self._emptied: set[str] = set()

    def put_report(self, name: str, report: CapacityReport, *, follows_claims: bool) -> None:
        """A cluster's newest report."""
        ahead = self.ahead.take(name, report, follows_claims=follows_claims)
        self.forget_report(name)
        if ahead is not None:
            self._rooms[name], self._pools[name] = ahead, ahead.room.pools
        elif report.pools is not None:
            self._pools[name] = pools_of(report.pools)

    def forget_report(self, name: str) -> None:
        self._pools.pop(name, None)
        self.empty(name)

    def empty(self, name: str) -> None:
        """Everything outstanding there is to be packed again."""
        self._rooms.pop(name, None)
        self._emptied.add(name)
        self.changed.add(name)

    def put(self, name: str, ledger: ClusterLedger, room: Room) -> None:
        """A room that holds what is outstanding by the ledger."""
        self._rooms[name] = Roomed(ledger, room)

    def remove(self, name: str) -> None:
        """The cluster is gone."""
        self.ahead.forget(name)
        self._pools.pop(name, None)
        self._rooms.pop(name, None)

    def shown(self) -> None:
        """A snapshot shows all of it."""
        self.changed.clear()
        self._emptied.clear()
        self._rooms.clear()

    def room(
        self,
        name: str,
        report: CapacityReport,
        ledger: ClusterLedger,
        shown: Room | None,
        *,
        follows_claims: bool,
    ) -> Room | UnpackedRoom | None:
        """The room, to be packed where none is known that it can be made from; None without pools.

        ``shown`` is the last snapshot's.
        """
        pools = self._pools.get(name)
        if pools is None:
            return None
        if shown is not None and name not in self.changed:
            return shown
        known = self._rooms.get(name)
        if known is not None and known.ledger is ledger:
            return known.room
        before = known.room if known is not None else None
        if before is None and name not in self._emptied:
            before = shown
        if before is None:
            report_id = ReportId(report.epoch, report.sequence)
            return UnpackedRoom(report_id, pools, follows_claims, ledger.outstanding())
        room = before.holding(ledger.outstanding())
        self.put(name, ledger, room)
        return room
