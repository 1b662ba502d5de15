"""Promises asked for where nobody keeps a ledger: the rooms say what the binding holds already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from federation.capacity.assignments import Assignment
from federation.capacity.careful import WHATEVER_FITS, PromiseTerms
from federation.capacity.cluster_room import ReportId
from federation.capacity.fleet_rooms import FleetRooms
from federation.capacity.reserve import Refused, promise
from federation.model.reservations import Outstanding, PromiseCertificate


class Promise(NamedTuple):
    """What a binding holds in one cluster; ``holding`` shows it in the cells of ``report``."""

    cluster: str
    report: ReportId | None
    holding: Assignment

    @property
    def certificate(self) -> PromiseCertificate:
        return self.holding.outstanding.certificate


def asked_of(
    fleet: FleetRooms,
    names: Sequence[str],
    binding: str,
    asks: Mapping[int, tuple[Outstanding, ...]],
    terms: PromiseTerms = WHATEVER_FITS,
    *,
    allow_unproven: bool = False,
) -> FleetRooms | Refused:
    """Promise a binding what it asks for beside what it has; by default whatever fits."""
    own = [c for c in asks if (room := fleet.rooms[c]) and room.holdings_of(binding)]
    return promise(fleet, names, binding, asks, own, terms, allow_unproven=allow_unproven)


def promises_of(
    fleet: FleetRooms, names: Sequence[str], binding: str, positions: Iterable[int]
) -> list[Promise]:
    """What the binding holds in some clusters."""
    return [
        Promise(names[c], room.report, each)
        for c in positions
        if (room := fleet.rooms[c]) is not None
        for each in room.holdings_of(binding)
    ]
