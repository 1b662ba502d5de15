"""Rooms of reports that will soon be known: packed in a thread, before anybody asks for them.

Must not decide which report counts: what is packed for another is never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.ledger import ClusterLedger
from federation.model.cluster import CapacityReport
from federation.model.reported_pools import pools_of
from federation.services.threads import PACKING_ROOMS


class Roomed(NamedTuple):
    """A room, and the ledger whose outstanding it holds."""

    ledger: ClusterLedger
    room: Room


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ComingReport:
    """A report, and the ledger of its cluster before it."""

    report: CapacityReport
    ledger: ClusterLedger
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
                pools_of(report.pools),
                coming.follows_claims,
                ledger.outstanding(),
            )
    rooms = zip(unpacked, FleetRooms.of(unpacked.values()).rooms, strict=True)
    return {name: Roomed(ledgers[name], room) for name, room in rooms if room is not None}
