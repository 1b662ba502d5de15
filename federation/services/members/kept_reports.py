"""What reports say, and what is promised beside them, kept once a minute for replays.

Must not be in the way of a decision: it reads a snapshot of the fleet, after the commit. One
control plane at a time does it.
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
# For so long it is remembered what was decided: by its time alone one that was just committed is
# not known to be in a picture. Commits take less, or readers of pictures have to be told.
DECIDED_SECONDS: Final = 20.0
MOST_DECIDED: Final = 50_000


class _Source(NamedTuple):
    """What a picture is made of; ``pools`` are None where no nodes are seen."""

    cluster: str
    report: CapacityReport | None
    pools: Pools | None
    model: ResourceModel
    ledger: ClusterLedger
    follows_claims: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    """A picture that was written on a day, and what it was made of."""

    source: _Source
    day: date
    name: bytes


class ReportKeeping:
    """Belongs to one event loop. Implements JournalObserver."""

    def __init__(self, fleet: FleetOwner, clock: Callable[[], float] = time.monotonic) -> None:
        self._fleet = fleet
        self._clock = clock
        self._after = ""
        self._kept: dict[str, _Kept] = {}
        self._decided: deque[tuple[float, str]] = deque(maxlen=MOST_DECIDED)
        self._told_since = clock()
        fleet.observe(self._note, BindingChanged)

    def changed(self, change: Change) -> None:
        """It is told of that once it was applied."""

    def lost(self) -> None:
        """What was decided shortly before is in the ledgers by now, and was told to nobody."""
        self._told_since = self._clock()

    async def keep(self, begin: Callable[[], AbstractAsyncContextManager[Transaction]]) -> int:
        """The next clusters, in the order of their names; how many. Then it begins anew.

        None, as long as it does not know all that was decided shortly before: a replay would reckon
        in twice what it does not know.
        """
        if self._clock() < self._told_since + DECIDED_SECONDS:
            return 0
        async with begin() as tx:
            moment = await tx.kept_reports.now()
        snapshot = self._fleet.snapshot
        decided = self._recently_decided()
        names = snapshot.names_after(self._after, KEPT_AT_ONCE)
        sources = [_source(snapshot, name) for name in names]
        new = [each for each in sources if self._known(each, moment.day) is None]
        packed = await PACKING.run(_packed, new)
        kept = {
            each.cluster: _Kept(source=each, day=moment.day, name=name)
            for each, (name, _) in zip(new, packed, strict=True)
        }
        pictures = {
            each.cluster: known.name
            for each in sources
            if (known := kept.get(each.cluster) or self._known(each, moment.day)) is not None
        }
        if pictures:
            body = packed_round(moment.at, pictures, decided)
            async with begin() as tx:
                await tx.kept_reports.add(moment.day, body, dict(packed))
        self._kept |= kept
        is_over = len(names) < KEPT_AT_ONCE
        if is_over:
            self._kept = {name: each for name, each in self._kept.items() if self._fleet.has(name)}
        self._after = "" if is_over else names[-1]
        return len(names)

    def _known(self, source: _Source, day: date) -> _Kept | None:
        """Its picture, if it was written on that day: what it is made of is the very same."""
        known = self._kept.get(source.cluster)
        if known is None or known.day != day:
            return None
        before = known.source
        is_same = (
            before.ledger is source.ledger
            and before.pools is source.pools
            and before.follows_claims == source.follows_claims
            and before.model == source.model
            and _id_of(before.report) == _id_of(source.report)
        )
        return known if is_same else None

    def _note(self, change: Change) -> None:
        if isinstance(change, BindingChanged) and change.decision and change.clusters:
            self._decided.append((self._clock(), change.decision))

    def _recently_decided(self) -> frozenset[str]:
        while self._decided and self._decided[0][0] < self._clock() - DECIDED_SECONDS:
            self._decided.popleft()
        return frozenset(decision for _, decision in self._decided)


def _source(snapshot: FleetSnapshot, name: str) -> _Source:
    position = snapshot.positions[name]
    state, site = snapshot.states[position], snapshot.rooms.sites[position]
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
    """Name and body of each."""
    return [
        packed_picture(
            each.report,
            each.pools,
            each.model,
            [OpenPromise(one, _decision(each.ledger, one)) for one in each.ledger.outstanding()],
            follows_claims=each.follows_claims,
        )
        for each in sources
    ]


def _decision(ledger: ClusterLedger, outstanding: Outstanding) -> str:
    held: Mapping[str, str] = {
        each.component: each.decision for each in ledger.newest(outstanding.binding)
    }
    return held.get(outstanding.component, "")
