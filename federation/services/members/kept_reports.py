"""Pictures of reports and of promises beside them, stored once a minute for replays.

Must not delay a decision: it reads a snapshot of the fleet, after the commit. One control plane at
a time does it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

from federation.capacity.ledger import ClusterLedger
from federation.history.kept_reports import OpenPromise, packed_picture, packed_round
from federation.model.cluster import CapacityReport
from federation.model.grades import ResourceModel
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.journal import BindingChanged, Change
from federation.services.ports import Transaction
from federation.services.threads import PACKING

KEPT_AT_ONCE: Final = 100
KEEP_EVERY_SECONDS: Final = 60.0
# Decisions are remembered for this time, because the time of a fresh one alone does not say whether
# it is in a picture. Commits take less time.
DECIDED_SECONDS: Final = 20.0
MAX_DECIDED: Final = 50_000


class _Source(NamedTuple):
    """The source of a picture; ``pools`` are None if no nodes are seen."""

    cluster: str
    report: CapacityReport | None
    pools: Pools | None
    model: ResourceModel
    ledger: ClusterLedger
    follows_claims: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    """A picture that was written on a day, and its source."""

    source: _Source
    day: date
    name: bytes


class ReportKeeping:
    """Pictures of all clusters, in turn. Belongs to one event loop. Implements JournalObserver."""

    def __init__(self, fleet: FleetOwner, clock: Callable[[], float] = time.monotonic) -> None:
        self._fleet = fleet
        self._clock = clock
        self._after = ""
        self._kept: dict[str, _Kept] = {}
        self._decided: deque[tuple[float, str]] = deque(maxlen=MAX_DECIDED)
        self._told_since = clock()
        fleet.observe(self._note, BindingChanged)

    def changed(self, change: Change) -> None:
        """Ignore a change: it is announced after it was applied."""

    def lost(self) -> None:
        """Note that recent decisions, which are in the ledgers, were not announced."""
        self._told_since = self._clock()

    async def keep(self, begin: Callable[[], AbstractAsyncContextManager[Transaction]]) -> int:
        """Store pictures of the next clusters by name, then begin anew; return how many.

        0 as long as recent decisions are not all known: a replay would count unknown ones twice.
        """
        if self._clock() < self._told_since + DECIDED_SECONDS:
            return 0
        async with begin() as tx:
            moment = await tx.kept_reports.now()
        snapshot = self._fleet.snapshot
        decided = self._recently_decided()
        names = snapshot.names_after(self._after, KEPT_AT_ONCE)
        sources = [_source(snapshot, name) for name in names]
        new = [source for source in sources if self._known(source, moment.day) is None]
        packed = await PACKING.run(_packed, new)
        new_pictures = {
            source.cluster: _Kept(source=source, day=moment.day, name=name)
            for source, (name, _) in zip(new, packed, strict=True)
        }
        pictures = {
            source.cluster: picture.name
            for source in sources
            if (picture := new_pictures.get(source.cluster) or self._known(source, moment.day))
            is not None
        }
        if pictures:
            body = packed_round(moment.at, pictures, decided)
            async with begin() as tx:
                await tx.kept_reports.add(moment.day, body, dict(packed))
        self._kept |= new_pictures
        is_over = len(names) < KEPT_AT_ONCE
        if is_over:
            self._kept = {
                name: picture for name, picture in self._kept.items() if self._fleet.has(name)
            }
        self._after = "" if is_over else names[-1]
        return len(names)

    def _known(self, source: _Source, day: date) -> _Kept | None:
        """Return its picture, if it was written on that day from the very same source."""
        picture = self._kept.get(source.cluster)
        if picture is None or picture.day != day:
            return None
        last = picture.source
        is_same = (
            last.ledger is source.ledger
            and last.pools is source.pools
            and last.follows_claims == source.follows_claims
            and last.model == source.model
            and _id_of(last.report) == _id_of(source.report)
        )
        return picture if is_same else None

    def _note(self, change: Change) -> None:
        if isinstance(change, BindingChanged) and change.decision and change.clusters:
            self._decided.append((self._clock(), change.decision))

    def _recently_decided(self) -> frozenset[str]:
        while self._decided and self._decided[0][0] < self._clock() - DECIDED_SECONDS:
            self._decided.popleft()
        return frozenset(decision for _, decision in self._decided)


def _source(snapshot: FleetSnapshot, name: str) -> _Source:
    position = snapshot.positions[name]
    state, site = snapshot.states[position], snapshot.rooms.clusters[position]
    return _Source(
        cluster=name,
        report=state.report,
        pools=site.pools if site else None,
        model=state.cluster.model,
        ledger=snapshot.ledgers[position],
        follows_claims=bool(site and site.follows_claims),
    )


def _id_of(report: CapacityReport | None) -> tuple[int, int] | None:
    return (report.epoch, report.sequence) if report else None


def _packed(sources: Sequence[_Source]) -> list[tuple[bytes, bytes]]:
    """Return the names and bodies of pictures."""
    return [
        packed_picture(
            source.report,
            source.pools,
            source.model,
            [
                OpenPromise(one, _decision(source.ledger, one))
                for one in source.ledger.outstanding()
            ],
            follows_claims=source.follows_claims,
        )
        for source in sources
    ]


def _decision(ledger: ClusterLedger, outstanding: Outstanding) -> str:
    held: Mapping[str, str] = {
        reservation.component: reservation.decision
        for reservation in ledger.newest(outstanding.binding)
    }
    return held.get(outstanding.component, "")
