"""The newest snapshot of the fleet, and the clusters that have changed since it was made.

Must not know why a cluster changed. Must not pack on the event loop: a room that has to be packed
from its report is returned unpacked. Belongs to one event loop.
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

# Clusters that join or leave in one step: the more of them, the more a step costs per cluster.
MAX_MOVED_AT_ONCE: Final = 64
# If more than a fourth of the clusters join or leave, the snapshot is built from nothing. That
# takes seconds for 10,000 clusters.
REBUILT_PART: Final = 4


class ChangedNames(set[str]):
    """Names of clusters that changed since the snapshot; followers have sets of their own."""

    def __init__(self) -> None:
        super().__init__()
        self._followers: list[set[str]] = []

    def add(self, name: str) -> None:
        super().add(name)
        self.tell([name])

    def tell(self, names: Iterable[str]) -> None:
        """Add names for the followers only, because the snapshot has these changes already."""
        for follower in self._followers:
            follower.update(names)

    def followed(self) -> set[str]:
        """Return a set to which every changed cluster is added; its reader removes the names."""
        names = set[str]()
        self._followers.append(names)
        return names


class PackedRoom(NamedTuple):
    """A room in which the outstanding replicas of a version of its cluster's ledger are packed."""

    version: int
    room: Room


class ComingReport(NamedTuple):
    """A report that will be put, and the ledger and the pools of its cluster until then."""

    report: CapacityReport
    ledger: ClusterLedger
    pools: Pools | None
    follows_claims: bool


class ChangedRooms:
    """Rooms of clusters that changed since the snapshot, and the pools of all newest reports.

    ``changed`` names the clusters whose outstanding replicas or pools differ from the snapshot.
    """

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self._pools: dict[str, Pools] = {}
        self._rooms: dict[str, PackedRoom] = {}
        # Rooms of reports that are not put yet.
        self._ahead: dict[str, PackedRoom] = {}
        self._emptied: set[str] = set()

    async def pack_ahead(self, reports: Mapping[str, ComingReport]) -> None:
        """Pack the rooms of coming reports on a thread, all in the same numpy calls."""
        if reports:
            self._ahead.update(await PACKING_ROOMS.run(_packed, reports))

    def put_report(self, name: str, report: CapacityReport, *, follows_claims: bool) -> None:
        """Put a cluster's newest report, with the room that was packed ahead for it."""
        ahead = self._ahead.pop(name, None)
        pools = self._pools.get(name)
        self.forget_report(name)
        if (
            ahead is not None
            and ahead.room.report == (report.epoch, report.sequence)
            and ahead.room.follows_claims == follows_claims
        ):
            self._rooms[name], self._pools[name] = ahead, ahead.room.pools
        elif report.pools is not None:
            self._pools[name] = _newer_pools(pools, report.pools)

    def pools(self, name: str) -> Pools | None:
        """Return the pools of a cluster's newest report as arrays."""
        return self._pools.get(name)

    def forget_report(self, name: str) -> None:
        """Forget the newest report of a cluster."""
        self._pools.pop(name, None)
        self.empty(name)

    def empty(self, name: str) -> None:
        """Have all outstanding replicas of a cluster packed again when its room is needed."""
        self._rooms.pop(name, None)
        self._emptied.add(name)
        self.changed.add(name)

    def put(self, name: str, ledger: ClusterLedger, room: Room) -> None:
        """Put the room in which the outstanding replicas of a ledger are packed."""
        self._rooms[name] = PackedRoom(ledger.version, room)

    def remove(self, name: str) -> None:
        """Forget a cluster that left the fleet."""
        self._ahead.pop(name, None)
        self._pools.pop(name, None)
        self._rooms.pop(name, None)

    def clear_changes(self) -> None:
        """Forget all changes because a new snapshot has them."""
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
        """Return a cluster's room for this ledger; None without pools.

        It is made from the room of an earlier ledger, or from ``shown``, the room in the snapshot.
        Where neither goes on to this ledger it is returned unpacked.
        """
        pools = self._pools.get(name)
        if pools is None:
            return None
        if shown is not None and name not in self.changed:
            return shown
        packed = self._rooms.get(name)
        if packed is not None and packed.version == ledger.version:
            return packed.room
        earlier = packed.room if packed is not None else None
        if earlier is None and name not in self._emptied:
            earlier = shown
        order = ledger.order()
        room = None if earlier is None else earlier.following(order)
        if room is None:
            report_id = ReportId(report.epoch, report.sequence)
            return UnpackedRoom(report_id, pools, follows_claims, order)
        self.put(name, ledger, room)
        return room


class CurrentSnapshot:
    """The newest snapshot in ``value``; ``renew`` replaces it."""

    def __init__(self, *, modeling_enabled: bool) -> None:
        self.changed = ChangedNames()
        self.rooms = ChangedRooms()
        self.value = FleetSnapshot.of((), modeling_enabled=modeling_enabled)
        self._modeling_enabled = modeling_enabled

    def room(
        self, name: str, report: CapacityReport, ledger: ClusterLedger, *, follows_claims: bool
    ) -> Room | UnpackedRoom | None:
        """Return a cluster's room for this ledger; None without pools."""
        position = self.value.positions.get(name)
        shown = None if position is None else self.value.rooms.rooms[position]
        return self.rooms.room(name, report, ledger, shown, follows_claims=follows_claims)

    def adopt(self, snapshot: FleetSnapshot, names: Iterable[str]) -> None:
        """Take a snapshot that differs from the last by the changes of these clusters only."""
        self.value = snapshot
        self.changed.tell(names)

    def renew(
        self, members: Collection[str], picture: Callable[[str, bool], ClusterPicture]
    ) -> FleetSnapshot:
        """Return a snapshot of all members, and renew the changed clusters in it.

        ``picture`` takes a cluster's name, and whether the room of the cluster is needed.
        """
        if self.changed:
            self.value = self._renewed(members, picture)
            self.changed.clear()
            self.rooms.clear_changes()
        return self.value

    def _renewed(
        self, members: Collection[str], picture: Callable[[str, bool], ClusterPicture]
    ) -> FleetSnapshot:
        positions = self.value.positions
        leaving = {name for name in self.changed if name in positions and name not in members}
        joining = {name for name in self.changed if name not in positions and name in members}
        if len(leaving) + len(joining) > max(MAX_MOVED_AT_ONCE, len(positions) // REBUILT_PART):
            return FleetSnapshot.of(
                ((name, picture(name, True)) for name in members),
                modeling_enabled=self._modeling_enabled,
            )
        pictures = {
            name: picture(name, name in self.rooms.changed)
            for name in self.changed
            if name in members
        }
        joined = {name: pictures[name] for name in joining}
        moved = self.value.after_all(leaving, joined, MAX_MOVED_AT_ONCE)
        return moved.with_pictures(pictures, self.rooms.changed & pictures.keys())


def _newer_pools(pools: Pools | None, reported: ReportedPools) -> Pools:
    """Return reported pools as arrays; the same object if they are equal, which caches rely on."""
    newer = pools_of(reported)
    return pools if pools is not None and pools.equals(newer) else newer


def _packed(reports: Mapping[str, ComingReport]) -> dict[str, PackedRoom]:
    """Return the rooms after these reports, if no other change comes to their clusters first."""
    versions, unpacked = {}, {}
    for name, coming in reports.items():
        report = coming.report
        if report.pools is not None:
            ledger = coming.ledger.reported(report.interest_version, report.echoes)
            versions[name] = ledger.version
            unpacked[name] = UnpackedRoom(
                ReportId(report.epoch, report.sequence),
                _newer_pools(coming.pools, report.pools),
                coming.follows_claims,
                ledger.order(),
            )
    rooms = zip(unpacked, FleetRooms.of(unpacked.values()).rooms, strict=True)
    return {name: PackedRoom(versions[name], room) for name, room in rooms if room is not None}
