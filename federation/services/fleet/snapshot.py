"""An immutable snapshot of the fleet, as arrays by a cluster's position.

Must not change once made: threads share it. The next snapshot is made from the last one.
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

# Outstanding replicas by position, and the positions at which they have to be read again.
_Cached: TypeAlias = tuple[dict[int, tuple[Outstanding, ...]], frozenset[int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterPicture:
    """One cluster of a snapshot; ``room`` is the free capacity of its report after promises.

    A room may be unpacked, because packing many rooms at once is faster.
    """

    state: ClusterState
    ledger: ClusterLedger
    room: Room | UnpackedRoom | None
    presence: AgentPresence

    @property
    def unseen(self) -> Reason:
        """The reason why the agent cannot see its cluster; empty where it can."""
        blindness = self.presence.blindness
        if blindness is None:
            return NO_REASON
        since, cause = Word(blindness.since_text), Word(blindness.reason)
        return Reason.of(ReasonCode.UNSEEN, since, cause)


def shown_of(presence: AgentPresence) -> tuple[object, ...]:
    """Return the parts of a presence that a snapshot has in its own columns."""
    return presence.silent_after, presence.blindness, presence.may_return


class OutstandingByCluster(Mapping[int, tuple[Outstanding, ...]]):
    """Outstanding replicas by position, for clusters that have any; read from ledgers when needed.

    Estimates need them, decisions do not. The cache is replaced as one value, because several
    threads may read a snapshot.
    """

    def __init__(self, ledgers: Sequence[ClusterLedger], cached: _Cached | None = None) -> None:
        self._ledgers = ledgers
        self._cached: _Cached = cached or ({}, frozenset(range(len(ledgers))))

    def after(self, ledgers: Sequence[ClusterLedger], changed: Iterable[int]) -> Self:
        """Return the same for later ledgers, which differ at the positions in ``changed``."""
        by_position, stale = self._cached
        return type(self)(ledgers, (by_position, stale.union(changed)))

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
        by_position, stale = self._cached
        if stale:
            by_position = by_position.copy()
            for position in stale:
                by_position.pop(position, None)
                if self._ledgers[position].is_open:
                    by_position[position] = self._ledgers[position].outstanding()
            self._cached = by_position, frozenset()
        return by_position


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetSnapshot:
    """All clusters at one instant, by ascending name.

    ``generation`` is a hash of their names. ``positions`` are indexes on axis c of all arrays, by
    name. In ``rooms`` the ``outstanding`` replicas of ``ledgers`` are packed. ``silent_after_c`` is
    when a cluster becomes stale unless its agent reports (Unix seconds). ``unseen`` is why an agent
    cannot see its cluster, empty where it can. ``may_return_c`` marks clusters whose placing agent
    is away for a moment.
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
    # For the last ``now`` only, which hundreds of decisions of one batch share.
    _evidence: dict[float, ReportEvidence] = field(init=False, default_factory=dict)

    @classmethod
    def of(
        cls, pictures: Iterable[tuple[str, ClusterPicture]], *, modeling_enabled: bool
    ) -> FleetSnapshot:
        """Return a snapshot of named clusters, all made from nothing."""
        by_name = dict(sorted(pictures))
        names, ordered = tuple(by_name), tuple(by_name.values())
        states = [picture.state for picture in ordered]
        return cls(
            generation=generation_of(names),
            names=names,
            positions={name: position for position, name in enumerate(names)},
            fleet=Fleet.of([state.cluster for state in states]),
            capacity=FleetCapacity.of(states, modeling_enabled=modeling_enabled),
            rooms=FleetRooms.of(picture.room for picture in ordered),
            ledgers=tuple(picture.ledger for picture in ordered),
            outstanding=OutstandingByCluster([picture.ledger for picture in ordered]),
            silent_after_c=np.array([p.presence.silent_after for p in ordered], np.float64),
            may_return_c=np.array([p.presence.may_return for p in ordered], np.bool_),
            unseen=Column.of(picture.unseen for picture in ordered),
        )

    def after_all(
        self, leaving: Collection[str], joining: Mapping[str, ClusterPicture], at_once: int
    ) -> FleetSnapshot:
        """Return the same as ``after``, made in steps of at most ``at_once`` clusters."""
        snapshot, leaving_names, joining_names = self, sorted(leaving), sorted(joining)
        for start in range(0, len(leaving_names), at_once):
            snapshot = snapshot.after(leaving_names[start : start + at_once], {})
        for start in range(0, len(joining_names), at_once):
            names = joining_names[start : start + at_once]
            snapshot = snapshot.after((), {name: joining[name] for name in names})
        return snapshot

    def after(
        self, leaving: Collection[str], joining: Mapping[str, ClusterPicture]
    ) -> FleetSnapshot:
        """Return a snapshot without the leaving clusters and with the joining ones.

        The remaining clusters only move along the arrays. Joining clusters get no rooms yet.
        """
        if not leaving and not joining:
            return self
        removed = sorted(self.positions[name] for name in leaving)
        names = list(Moves(removed=removed).items(self.names, ()))
        joined: dict[int, ClusterPicture] = {}
        for name in sorted(joining):
            position = bisect_left(names, name)
            names.insert(position, name)
            joined[position] = joining[name]
        moves = Moves(removed=removed, added=list(joined))
        states = {position: picture.state for position, picture in joined.items()}
        fleet = self.fleet.after(moves, {c: state.cluster for c, state in states.items()})
        ledgers = moves.items(self.ledgers, [picture.ledger for picture in joined.values()])
        presences = [picture.presence for picture in joined.values()]
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
                self.silent_after_c, [presence.silent_after for presence in presences]
            ),
            may_return_c=moves.array(
                self.may_return_c, [presence.may_return for presence in presences]
            ),
            unseen=self.unseen.after(moves, {c: picture.unseen for c, picture in joined.items()}),
        )

    def with_pictures(
        self, changes: Mapping[str, ClusterPicture], rooms_of: Collection[str]
    ) -> FleetSnapshot:
        """Return a snapshot of the same clusters with other pictures of some of them.

        ``rooms_of`` names the clusters that may have another room.
        """
        rooms = {self.positions[name]: changes[name].room for name in rooms_of}
        by_position = {self.positions[name]: picture for name, picture in changes.items()}
        states, clusters = {}, {}
        ledgers = list(self.ledgers)
        silent_after_c, may_return_c = self.silent_after_c.copy(), self.may_return_c.copy()
        newly_unseen: dict[int, Reason] = {}
        for position, picture in by_position.items():
            previous = self.states[position]
            if picture.state is not previous:
                states[position] = picture.state
            if picture.state.cluster != previous.cluster:
                clusters[position] = picture.state.cluster
            ledgers[position] = picture.ledger
            silent_after_c[position] = picture.presence.silent_after
            may_return_c[position] = picture.presence.may_return
            if picture.unseen != self.unseen[position]:
                newly_unseen[position] = picture.unseen
        return replace(
            self,
            fleet=self.fleet.after(UNMOVED, clusters) if clusters else self.fleet,
            capacity=self.capacity.with_clusters(states) if states else self.capacity,
            rooms=self.rooms.with_rooms(rooms) if rooms else self.rooms,
            ledgers=tuple(ledgers),
            outstanding=self._outstanding_after(rooms, ledgers),
            silent_after_c=silent_after_c,
            may_return_c=may_return_c,
            unseen=self.unseen.after(UNMOVED, newly_unseen) if newly_unseen else self.unseen,
        )

    def with_promises(
        self, rooms: FleetRooms, changes: Mapping[int, ClusterLedger]
    ) -> FleetSnapshot:
        """Return the same fleet after decisions: ``rooms`` belong to the changed ledgers."""
        ledgers = list(self.ledgers)
        for position, ledger in changes.items():
            ledgers[position] = ledger
        return replace(
            self,
            rooms=rooms,
            ledgers=tuple(ledgers),
            outstanding=self._outstanding_after(changes, ledgers),
        )

    def _outstanding_after(
        self, changed: Collection[int], ledgers: Sequence[ClusterLedger]
    ) -> OutstandingByCluster:
        """Return the outstanding replicas; the same object if there were none and are none.

        Estimates are cached by the identity of this object.
        """
        if any(self.ledgers[c].is_open or ledgers[c].is_open for c in changed):
            return self.outstanding.after(ledgers, changed)
        return self.outstanding

    @property
    def reported(self) -> FleetCells:
        """The free cells of all reports, without any promises packed in them."""
        return self.rooms.reported

    def fleet_at(self, now: float) -> Fleet:
        """Return the fleet for decisions at ``now``: stale and unseen clusters are not ready."""
        return self.fleet.without(self.unseen_at(now))

    def unseen_at(self, now: float) -> Column[Reason]:
        """Return the reason why a cluster is stale or unseen at ``now``; empty where it is not."""
        silent_c = self.silent_after_c < now
        if not silent_c.any():
            return self.unseen
        code_c = np.where(silent_c, len(self.unseen.values), self.unseen.code_c)
        return Column(code_c=code_c, values=(*self.unseen.values, STALE))

    def evidence_at(self, now: float) -> ReportEvidence:
        """Return the reports that decisions at ``now`` rest on; one object for all of them."""
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
        """The free cells of all reports, with all outstanding replicas packed in them."""
        return self.rooms.filled

    @property
    def states(self) -> tuple[ClusterState, ...]:
        return self.capacity.states

    def names_after(self, after: str, limit: int) -> tuple[str, ...]:
        """Return at most ``limit`` names greater than ``after``, ascending."""
        start = bisect_right(self.names, after)
        return self.names[start : start + limit]


def check_named(clusters: Iterable[str], names: Container[str]) -> None:
    """Raise InvalidRequest for clusters of the field ``clusters`` that are not among ``names``."""
    violations = [
        Violation(field=f"clusters[{place}]", rule=f"there is no cluster {name!r}")
        for place, name in enumerate(clusters)
        if name not in names
    ]
    if violations:
        raise InvalidRequest(violations)


def generation_of(names: Sequence[str]) -> str:
    """Return a hash of the names, which is the same in every process."""
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
