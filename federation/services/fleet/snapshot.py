"""The fleet at one instant, as arrays by position; made anew, or from the one before.

Plain values, safe in any thread. Must not change once made.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import (
    Collection,
    Container,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.capacity.cluster_room import Room
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.ledger import ClusterLedger
from federation.model.arrays import BoolArray
from federation.model.cluster import ClusterState
from federation.model.errors import InvalidRequest, Violation
from federation.model.positions import UNMOVED, Moves
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, Word
from federation.model.reservations import Outstanding
from federation.scheduler.fleet import Column, Fleet
from federation.services.agent_values import AgentPresence
from federation.services.values import ReportEvidence

STALE: Final = Reason(ReasonCode.STALE)
EVIDENCE_DECIMALS = 3

# What is outstanding by position, and where that is to be found anew.
_Known: TypeAlias = tuple[dict[int, tuple[Outstanding, ...]], frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterPicture:
    """One cluster in a snapshot: ``room`` is what its report has beside what is outstanding.

    Rooms that are still to be packed are packed faster when there are many.
    """

    state: ClusterState
    ledger: ClusterLedger
    room: Room | UnpackedRoom | None
    presence: AgentPresence

    @property
    def unseen(self) -> Reason:
        """Why the cluster is not seen as it is, empty where it is."""
        blindness = self.presence.blindness
        if blindness is None:
            return NO_REASON
        since, cause = Word(blindness.since_text), Word(blindness.reason)
        return Reason.of(ReasonCode.UNSEEN, since, cause)


def shown_of(presence: AgentPresence) -> tuple[object, ...]:
    """What a snapshot shows of it, but for its room."""
    return presence.silent_after, presence.blindness, presence.may_return


class OutstandingByCluster(Mapping[int, tuple[Outstanding, ...]]):
    """What is outstanding by ledgers, by position, where anything is; found when asked for, out of
    what was found by earlier ledgers.

    Decisions do not ask: it is for estimates. What is known is one value, as several threads may
    read a fleet.
    """

    def __init__(self, ledgers: Sequence[ClusterLedger], known: _Known | None = None) -> None:
        self._ledgers = ledgers
        self._known: _Known = known or ({}, frozenset(range(len(ledgers))))

    def after(self, ledgers: Sequence[ClusterLedger], changed: Iterable[int]) -> Self:
        """By later ledgers of the same clusters, some of which changed."""
        found, stale = self._known
        return type(self)(ledgers, (found, stale.union(changed)))

    def __getitem__(self, position: int) -> tuple[Outstanding, ...]:
        return self._by_position()[position]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_position())

    def __len__(self) -> int:
        return len(self._by_position())

    def items(self) -> ItemsView[int, tuple[Outstanding, ...]]:
        return self._by_position().items()

    def values(self) -> ValuesView[tuple[Outstanding, ...]]:
        return self._by_position().values()

    def _by_position(self) -> dict[int, tuple[Outstanding, ...]]:
        found, stale = self._known
        if stale:
            found = found.copy()
            for position in stale:
                found.pop(position, None)
                if self._ledgers[position].is_open:
                    found[position] = self._ledgers[position].outstanding()
            self._known = found, frozenset()
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetSnapshot:
    """All clusters at one instant, by ascending name.

    ``generation`` names the set of clusters and thereby their order: the same clusters give the
    same generation in every process. ``positions`` finds a name's place on the arrays' axis c.
    ``rooms`` hold what is ``outstanding`` by ``ledgers``, by position. ``silent_after_c`` is when
    each cluster becomes stale unless its agent is heard, Unix seconds; ``unseen`` says why one is
    not seen as it is, "" where it is. ``may_return_c`` marks those whose placer is away.
    """

    generation: str
    names: tuple[str, ...]
    positions: Mapping[str, int]
    fleet: Fleet
    capacity: FleetCapacity
    rooms: FleetRooms
    ledgers: tuple[ClusterLedger, ...]
    outstanding: OutstandingByCluster
    silent_after_c: npt.NDArray[np.float64]
    may_return_c: BoolArray
    unseen: Column[Reason]
    # For the time last asked about: decisions are made by the hundred at one.
    _evidence: dict[float, ReportEvidence] = field(init=False, default_factory=dict)

    @classmethod
    def of(
        cls, pictures: Iterable[tuple[str, ClusterPicture]], *, modeling_enabled: bool
    ) -> FleetSnapshot:
        by_name = dict(sorted(pictures))
        names, every = tuple(by_name), tuple(by_name.values())
        states = [each.state for each in every]
        return cls(
            generation=generation_of(names),
            names=names,
            positions={name: position for position, name in enumerate(names)},
            fleet=Fleet.of([state.cluster for state in states]),
            capacity=FleetCapacity.of(states, modeling_enabled=modeling_enabled),
            rooms=FleetRooms.of(each.room for each in every),
            ledgers=tuple(each.ledger for each in every),
            outstanding=OutstandingByCluster([each.ledger for each in every]),
            silent_after_c=np.array([each.presence.silent_after for each in every], np.float64),
            may_return_c=np.array([each.presence.may_return for each in every], np.bool_),
            unseen=Column.of(each.unseen for each in every),
        )

    def after_all(
        self, left: Collection[str], came: Mapping[str, ClusterPicture], at_once: int
    ) -> FleetSnapshot:
        """As ``after``, in steps of so many clusters: a step costs more, the more of them move."""
        moved, leaving, coming = self, sorted(left), sorted(came)
        for start in range(0, len(leaving), at_once):
            moved = moved.after(leaving[start : start + at_once], {})
        for start in range(0, len(coming), at_once):
            names = coming[start : start + at_once]
            moved = moved.after((), {name: came[name] for name in names})
        return moved

    def after(self, left: Collection[str], came: Mapping[str, ClusterPicture]) -> FleetSnapshot:
        """Without the clusters that left, and with those that came, whose rooms are still unknown.

        What the others have only moves.
        """
        if not left and not came:
            return self
        gone = sorted(self.positions[name] for name in left)
        names = list(Moves(left=gone).items(self.names, ()))
        newcomers: dict[int, ClusterPicture] = {}
        for name in sorted(came):
            position = bisect_left(names, name)
            names.insert(position, name)
            newcomers[position] = came[name]
        moves = Moves(left=gone, taken=list(newcomers))
        states = {position: each.state for position, each in newcomers.items()}
        fleet = self.fleet.after(moves, {c: each.cluster for c, each in states.items()})
        ledgers = moves.items(self.ledgers, [each.ledger for each in newcomers.values()])
        presences = [each.presence for each in newcomers.values()]
        return replace(
            self,
            generation=generation_of(fleet.names),
            names=fleet.names,
            positions=fleet.index,
            fleet=fleet,
            capacity=self.capacity.with_clusters(states, moves),
            rooms=self.rooms.after(moves),
            ledgers=ledgers,
            outstanding=OutstandingByCluster(ledgers),
            silent_after_c=moves.array(
                self.silent_after_c, [each.silent_after for each in presences]
            ),
            may_return_c=moves.array(self.may_return_c, [each.may_return for each in presences]),
            unseen=self.unseen.after(moves, {c: each.unseen for c, each in newcomers.items()}),
        )

    def with_pictures(
        self, changes: Mapping[str, ClusterPicture], rooms_of: Collection[str]
    ) -> FleetSnapshot:
        """The same clusters, some of them changed; only what changed is made again.

        ``rooms_of`` names those that may have another room.
        """
        rooms = {self.positions[name]: changes[name].room for name in rooms_of}
        by_position = {self.positions[name]: each for name, each in changes.items()}
        states, clusters = {}, {}
        ledgers = list(self.ledgers)
        silent_after_c, may_return_c = self.silent_after_c.copy(), self.may_return_c.copy()
        newly_unseen: dict[int, Reason] = {}
        for position, each in by_position.items():
            before = self.states[position]
            if each.state is not before:
                states[position] = each.state
            if each.state.cluster != before.cluster:
                clusters[position] = each.state.cluster
            ledgers[position] = each.ledger
            silent_after_c[position] = each.presence.silent_after
            may_return_c[position] = each.presence.may_return
            if each.unseen != self.unseen[position]:
                newly_unseen[position] = each.unseen
        return replace(
            self,
            fleet=self.fleet.after(UNMOVED, clusters) if clusters else self.fleet,
            capacity=self.capacity.with_clusters(states) if states else self.capacity,
            rooms=self.rooms.with_rooms(rooms) if rooms else self.rooms,
            ledgers=tuple(ledgers),
            outstanding=self._waiting(rooms, ledgers),
            silent_after_c=silent_after_c,
            may_return_c=may_return_c,
            unseen=self.unseen.after(UNMOVED, newly_unseen) if newly_unseen else self.unseen,
        )

    def with_promises(
        self, rooms: FleetRooms, changes: Mapping[int, ClusterLedger]
    ) -> FleetSnapshot:
        """The same fleet after decisions; ``rooms`` hold what is outstanding by these ledgers."""
        ledgers = list(self.ledgers)
        for position, ledger in changes.items():
            ledgers[position] = ledger
        return replace(
            self,
            rooms=rooms,
            ledgers=tuple(ledgers),
            outstanding=self._waiting(changes, ledgers),
        )

    def _waiting(
        self, changed: Collection[int], ledgers: Sequence[ClusterLedger]
    ) -> OutstandingByCluster:
        """The very same where nothing was and is outstanding: estimates are known by it."""
        if any(self.ledgers[c].is_open or ledgers[c].is_open for c in changed):
            return self.outstanding.after(ledgers, changed)
        return self.outstanding

    @property
    def reported(self) -> FleetCells:
        """The cells as reports have them, whatever is promised in them."""
        return self.rooms.reported

    def fleet_at(self, now: float) -> Fleet:
        """The fleet for decisions made at ``now``.

        Clusters that are stale, or that their agents cannot see, get no new replicas.
        """
        return self.fleet.without(self.unseen_at(now))

    def unseen_at(self, now: float) -> Column[Reason]:
        """Why each cluster is stale or not seen as it is at ``now``, "" where it is neither."""
        silent_c = self.silent_after_c < now
        if not silent_c.any():
            return self.unseen
        code_c = np.where(silent_c, len(self.unseen.values), self.unseen.code_c)
        return Column(code_c=code_c, values=(*self.unseen.values, STALE))

    def evidence_at(self, now: float) -> ReportEvidence:
        """Which reports decisions made at ``now`` are made on: one value for all of them."""
        evidence = self._evidence.get(now)
        if evidence is None:
            self._evidence.clear()
            ages_c = self.capacity.age_seconds_c(now)
            evidence = self._evidence[now] = ReportEvidence(
                sequences=tuple(self.capacity.sequence_c.tolist()),
                age_seconds=tuple(ages_c.round(EVIDENCE_DECIMALS).tolist()),
            )
        return evidence

    @property
    def cells(self) -> FleetCells:
        """What is left of every cluster's cells beside all that is outstanding."""
        return self.rooms.filled

    @property
    def states(self) -> tuple[ClusterState, ...]:
        return self.capacity.states

    def names_after(self, after: str, limit: int) -> tuple[str, ...]:
        """At most ``limit`` names that come after ``after``."""
        start = bisect_right(self.names, after)
        return self.names[start : start + limit]


def check_named(clusters: Iterable[str], known: Container[str]) -> None:
    """Raises InvalidRequest for the field ``clusters`` with those that are not known."""
    violations = [
        Violation(field=f"clusters[{place}]", rule=f"there is no cluster {name!r}")
        for place, name in enumerate(clusters)
        if name not in known
    ]
    if violations:
        raise InvalidRequest(violations)


def generation_of(names: Sequence[str]) -> str:
    """The same for the same clusters, in every process."""
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
