"""The whole fleet as one picture: how full each cluster is, and how well.

Must not ask the database: all of it is in memory, and worked out at most once a second for all who
look.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from federation.model.cluster import ClusterState, ResourceSummary
from federation.model.reasons import Reason
from federation.model.reservations import Outstanding
from federation.model.resources import CPU, MEMORY, PODS, is_extended
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.ports import Clock
from federation.services.threads import DRAWING

FRESH_SECONDS: Final = 1.0
# Beside cpu and memory, those that most clusters have.
MOST_RESOURCES: Final = 4
_COLUMNS: Final = (CPU, MEMORY)


class Health(IntEnum):
    """How well a cluster is, the worst first."""

    LOST = 0
    UNSEEN = 1
    NOT_READY = 2
    OVERCOMMITTED = 3
    NO_REPORT = 4
    CORDONED = 5
    READY = 6


# As people read it, with a sign of its own beside its colour.
HEALTH_WORDS: Final = {
    Health.LOST: ("✕", "lost"),
    Health.UNSEEN: ("?", "not seen"),
    Health.NOT_READY: ("▲", "not ready"),
    Health.OVERCOMMITTED: ("▲", "over-committed"),
    Health.NO_REPORT: ("…", "no report yet"),
    Health.CORDONED: ("‖", "cordoned"),
    Health.READY: ("●", "ready"),
}


class Meter(NamedTuple):
    """One resource of a cluster, or of several, in base units.

    ``running``: pods on nodes. ``promised``: reserved, and no pod of it was seen yet. ``waiting``:
    pods that have no node yet; what they ask for is taken from nobody.
    """

    resource: str
    allocatable: int = 0
    running: int = 0
    promised: int = 0
    waiting: int = 0

    @property
    def taken(self) -> int:
        return self.running + self.promised

    @property
    def free(self) -> int:
        return max(0, self.allocatable - self.taken)

    @property
    def share(self) -> float:
        """Of what there is; more than 1 where more is taken than there is."""
        if not self.allocatable:
            return 1.0 if self.taken else 0.0
        return self.taken / self.allocatable

    @property
    def whole(self) -> int:
        """What a bar stands for."""
        return max(1, self.allocatable, self.taken + self.waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A cluster at a glance. ``as_of`` is when its report was true, in Unix seconds.

    ``fullness`` is the share of cpu or memory that is taken, whichever is more.
    """

    name: str
    health: Health
    note: str
    labels: Mapping[str, str]
    region: str
    provider: str
    meters: Mapping[str, Meter]
    nodes_ready: int
    nodes: int
    as_of: float | None
    fullness: float

    @property
    def sign(self) -> str:
        return HEALTH_WORDS[self.health][0]

    @property
    def word(self) -> str:
        return HEALTH_WORDS[self.health][1]

    def meter(self, resource: str) -> Meter:
        return self.meters.get(resource, Meter(resource))


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPicture:
    """All clusters by ascending name; ``resources`` are the columns that are worth one."""

    rows: tuple[ClusterRow, ...]
    resources: tuple[str, ...]
    at: float


class Overview:
    """The newest picture, for all who look at the same time."""

    def __init__(self, fleet: FleetOwner, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._made_at = float("-inf")
        self._making: asyncio.Future[FleetPicture] | None = None

    async def apart(self) -> FleetPicture:
        """As the fleet is now, and not for who looks: pages would be as old as this one for a
        second. Raises LimitExceeded.
        """
        return await DRAWING.run(picture, self._fleet.snapshot, self._clock.now())

    async def newest(self) -> FleetPicture:
        """Raises LimitExceeded."""
        now = self._clock.now()
        is_old = now - self._made_at >= FRESH_SECONDS
        if self._making is None or (self._making.done() and is_old):
            self._made_at = now
            work = DRAWING.run(picture, self._fleet.snapshot, now)
            self._making = asyncio.ensure_future(work)
        # Who gives up must not take it from the others.
        return await asyncio.shield(self._making)


def picture(snapshot: FleetSnapshot, now: float) -> FleetPicture:
    """Safe in any thread."""
    unseen = snapshot.unseen_at(now)
    outstanding = dict(snapshot.outstanding.items())
    overcommitted = snapshot.rooms.overcommitted_c.tolist()
    rows = tuple(
        _row(state, unseen[c], outstanding.get(c, ()), is_overcommitted=overcommitted[c])
        for c, state in enumerate(snapshot.states)
    )
    return FleetPicture(rows=rows, resources=_resources(rows), at=now)


def totals(rows: Iterable[ClusterRow], resource: str) -> Meter:
    """Of several clusters together."""
    meters = [each.meter(resource) for each in rows]
    return Meter(
        resource,
        allocatable=sum(each.allocatable for each in meters),
        running=sum(each.running for each in meters),
        promised=sum(each.promised for each in meters),
        waiting=sum(each.waiting for each in meters),
    )


def matching(text: str) -> Callable[[ClusterRow], bool]:
    """What a filter lets through: ``eu tier=gold tier!=test !gpu health=ready``, all of it.

    A word alone is part of a name, or the key of a label; ``region``, ``provider`` and ``health``
    stand beside the labels.
    """
    tests = [_test(word) for word in text.replace(",", " ").split()]
    return lambda row: all(test(row) for test in tests)


SORTS: Final[Mapping[str, Callable[[ClusterRow], tuple[object, ...]]]] = {
    "name": lambda row: (row.name,),
    "health": lambda row: (row.health, row.name),
    "nodes": lambda row: (-row.nodes, row.name),
    "region": lambda row: (row.region, row.name),
    "age": lambda row: (row.as_of is not None, row.as_of or 0.0, row.name),
    "fullest": lambda row: (-row.fullness, row.name),
    "promised": lambda row: (-_most_promised(row), row.name),
}


def in_order(rows: Iterable[ClusterRow], by: str) -> list[ClusterRow]:
    """By one of ``SORTS``, or by the share of a resource that is taken, the fullest first."""
    if by in SORTS:
        return sorted(rows, key=SORTS[by])
    return sorted(rows, key=lambda row: (-row.meter(by).share, row.name))


def _row(
    state: ClusterState,
    unseen: Reason,
    outstanding: Sequence[Outstanding],
    *,
    is_overcommitted: bool,
) -> ClusterRow:
    cluster, report = state.cluster, state.report
    health, note = _health(state, unseen, is_overcommitted=is_overcommitted)
    meters = meters_of(report.summary, outstanding) if report else {}
    return ClusterRow(
        name=cluster.name,
        health=health,
        note=note,
        labels=cluster.labels,
        region=cluster.region,
        provider=cluster.provider,
        meters=meters,
        nodes_ready=report.nodes.ready if report else 0,
        nodes=report.nodes.total if report else 0,
        as_of=state.as_of,
        fullness=max((meters[each].share for each in _COLUMNS if each in meters), default=0.0),
    )


def meters_of(summary: ResourceSummary, outstanding: Iterable[Outstanding]) -> Mapping[str, Meter]:
    """By resource: cpu, memory and pods, then the others by name."""
    promised: dict[str, int] = {}
    for each in outstanding:
        replicas = max(0, each.in_summary - each.credited)
        promised[PODS] = promised.get(PODS, 0) + replicas
        for name, amount in each.requirements.request.items():
            promised[name] = promised.get(name, 0) + replicas * amount
    leading = [name for name in (*_COLUMNS, PODS) if name in summary.allocatable]
    return {
        name: Meter(
            name,
            allocatable=summary.allocatable[name],
            running=summary.allocated.get(name, 0),
            promised=promised.get(name, 0),
            waiting=summary.allocating.get(name, 0),
        )
        for name in dict.fromkeys((*leading, *sorted(summary.allocatable)))
    }


def _health(state: ClusterState, unseen: Reason, *, is_overcommitted: bool) -> tuple[Health, str]:
    cluster = state.cluster
    if cluster.lost_since is not None:
        return Health.LOST, "its agent was silent for too long: what runs here is moved elsewhere"
    if unseen:
        return Health.UNSEEN, str(unseen)
    if not cluster.ready:
        return Health.NOT_READY, "its Ready condition is not True"
    if state.report is None:
        return Health.NO_REPORT, "its agent has not reported yet"
    if is_overcommitted:
        return Health.OVERCOMMITTED, "promised replicas find no room in its newest report"
    if cluster.cordoned:
        return Health.CORDONED, "people keep new replicas away"
    return Health.READY, ""


def _resources(rows: Sequence[ClusterRow]) -> tuple[str, ...]:
    """Cpu and memory, then the extended resources that most clusters have."""
    counts = Counter(
        name
        for row in rows
        for name, meter in row.meters.items()
        if meter.allocatable and is_extended(name)
    )
    others = sorted(counts, key=lambda name: (-counts[name], name))
    return (*_COLUMNS, *others[: MOST_RESOURCES - len(_COLUMNS)])


def _most_promised(row: ClusterRow) -> float:
    return max((each.promised / each.whole for each in row.meters.values()), default=0.0)


def _test(word: str) -> Callable[[ClusterRow], bool]:
    if word.startswith("!"):
        return lambda row: word[1:] not in row.labels
    key, unlike, value = word.partition("!=")
    if unlike:
        return lambda row: _said(row, key) != value
    key, equals, value = word.partition("=")
    if equals:
        return lambda row: _said(row, key) == value
    return lambda row: word in row.name or word in row.labels


def _said(row: ClusterRow, key: str) -> str | None:
    """A label, or what a cluster says of itself under that name."""
    if key in row.labels:
        return row.labels[key]
    own = {"region": row.region, "provider": row.provider, "health": row.word.replace(" ", "-")}
    return own.get(key)
