"""The newest snapshot of the fleet, and the clusters that have changed since it was made.

Must not know why a cluster changed. Must not pack on the event loop: a room that has to be packed
anew is passed on as such. Belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.ledger import ClusterLedger
from federation.model.cluster import CapacityReport, ReportedPools
from federation.model.pools.values import Pools
from federation.model.reported_pools import pools_of
from federation.services.fleet.snapshot import ClusterPicture, FleetSnapshot
from federation.services.threads import PACKING_ROOMS

# Clusters that join or leave in one step. A step of more costs more than two of half as many.
MAX_MOVED_AT_ONCE: Final = 64
# The snapshot is built anew if more than a fourth of its clusters join or leave: that takes seconds
# for 10,000 clusters.
REBUILT_PART: Final = 4


class ChangedNames(set[str]):
    """Those that changed since the last snapshot; each follower has a set of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._followed: list[set[str]] = []

    def add(self, name: str) -> None:
        super().add(name)
        self.tell([name])

    def tell(self, names: Iterable[str]) -> None:
        """Note clusters for every reader, where the picture has their changes already."""
        for followed in self._followed:
            followed.update(names)

    def followed(self) -> set[str]:
        """A set that has every cluster that changes from now on, until its reader takes it out."""
        names = set[str]()
        self._followed.append(names)
        return names


class Roomed(NamedTuple):
    """A room, and the ledger whose outstanding it holds."""

    ledger: ClusterLedger
    room: Room


class ComingReport(NamedTuple):
    """A report, and the ledger and the pools of its cluster before it."""

    report: CapacityReport
    ledger: ClusterLedger
    pools: Pools | None
    follows_claims: bool


class RoomsAhead:
    """By cluster; of its newest report that is to come."""

    def __init__(self) -> None:
        self._rooms: dict[str, Roomed] = {}

    async def pack(self, reports: Mapping[str, ComingReport]) -> None:
        """All in the same steps."""
        if reports:
            self._rooms.update(await PACKING_ROOMS.run(_packed, reports))

    def take(self, name: str, report: CapacityReport, *, follows_claims: bool) -> Roomed | None:
        """That of a report which came, if it was packed; what was packed for another is dropped."""
        known = self._rooms.pop(name, None)
        if known is None or known.room.report != (report.epoch, report.sequence):
            return None
        return known if known.room.follows_claims == follows_claims else None

    def forget(self, name: str) -> None:
        self._rooms.pop(name, None)


class ChangedRooms:
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
        before = self._pools.get(name)
        self.forget_report(name)
        if ahead is not None:
            self._rooms[name], self._pools[name] = ahead, ahead.room.pools
        elif report.pools is not None:
            self._pools[name] = _newer_pools(before, report.pools)

    def pools(self, name: str) -> Pools | None:
        """Those of the newest report."""
        return self._pools.get(name)

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


class CurrentSnapshot:
    """The newest snapshot; ``renew`` makes the next one out of it."""

    def __init__(self, *, modeling_enabled: bool) -> None:
        self.changed = ChangedNames()
        self.rooms = ChangedRooms()
        self.value = FleetSnapshot.of((), modeling_enabled=modeling_enabled)
        self._modeling_enabled = modeling_enabled

    def room(
        self, name: str, report: CapacityReport, ledger: ClusterLedger, *, follows_claims: bool
    ) -> Room | UnpackedRoom | None:
        """Return the room of a cluster with all that is outstanding by its ledger."""
        position = self.value.positions.get(name)
        shown = None if position is None else self.value.rooms.rooms[position]
        return self.rooms.room(name, report, ledger, shown, follows_claims=follows_claims)

    def adopt(self, snapshot: FleetSnapshot, names: Iterable[str]) -> None:
        """Take over a snapshot that has the changes of these clusters, and no others."""
        self.value = snapshot
        self.changed.tell(names)

    def renew(
        self, members: Collection[str], picture: Callable[[str, bool], ClusterPicture]
    ) -> FleetSnapshot:
        """Return a snapshot of all members. ``picture`` is called with a name, and whether the room
        of that cluster is needed.
        """
        if self.changed:
            self.value = self._renewed(members, picture)
            self.changed.clear()
            self.rooms.shown()
        return self.value

    def _renewed(
        self, members: Collection[str], picture: Callable[[str, bool], ClusterPicture]
    ) -> FleetSnapshot:
        positions = self.value.positions
        left = {name for name in self.changed if name in positions and name not in members}
        came = {name for name in self.changed if name not in positions and name in members}
        if len(left) + len(came) > max(MAX_MOVED_AT_ONCE, len(positions) // REBUILT_PART):
            return FleetSnapshot.of(
                ((name, picture(name, True)) for name in members),
                modeling_enabled=self._modeling_enabled,
            )
        pictures = {
            name: picture(name, name in self.rooms.changed)
            for name in self.changed
            if name in members
        }
        newcomers = {name: pictures[name] for name in came}
        moved = self.value.after_all(left, newcomers, MAX_MOVED_AT_ONCE)
        return moved.with_pictures(pictures, self.rooms.changed & pictures.keys())


def _newer_pools(before: Pools | None, reported: ReportedPools) -> Pools:
    """The very same where they are as before: what was worked out from them still holds."""
    pools = pools_of(reported)
    return before if before is not None and before.equals(pools) else pools


def _packed(reports: Mapping[str, ComingReport]) -> dict[str, Roomed]:
    """Beside what is outstanding after each report, if nothing else happens before it."""
    ledgers, unpacked = {}, {}
    for name, coming in reports.items():
        report = coming.report
        if report.pools is not None:
            ledger = coming.ledger.reported(report.interest_version, report.echoes)
            ledgers[name] = ledger
            unpacked[name] = UnpackedRoom(
                ReportId(report.epoch, report.sequence),
                _newer_pools(coming.pools, report.pools),
                coming.follows_claims,
                ledger.outstanding(),
            )
    rooms = zip(unpacked, FleetRooms.of(unpacked.values()).rooms, strict=True)
    return {name: Roomed(ledgers[name], room) for name, room in rooms if room is not None}
