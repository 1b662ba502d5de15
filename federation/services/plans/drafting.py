"""Drafts of plans: each kind reads what it needs and searches its moves.

Must not store or move anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from federation.model.errors import InvalidRequest, NotFound, PreconditionFailed
from federation.model.placement import Binding, BindingName
from federation.plans.plan import Plan, PlanKind, PlanLimits, PlanStep
from federation.services.binding_ports import StoredBinding
from federation.services.fleet.registry import FleetOwner
from federation.services.plans.balancing import level_clusters
from federation.services.plans.consolidating import empty_clusters
from federation.services.plans.leaving import move_out
from federation.services.plans.making_room import make_room
from federation.services.plans.search import TO_BE_EMPTIED, PlannedMoves
from federation.services.ports import Clock, Store, Transaction
from federation.services.scheduling.attempt import Attempt, AttemptCause
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.stated_moves import PlannedMove
from federation.services.threads import PLANNING

# Bindings that a plan looks at, and bindings that it names as unfixed.
MAX_BINDINGS: Final = 20_000
MAX_UNFIXED: Final = 1000
READ_AT_ONCE: Final = 100
# Waiting bindings for which one plan makes room; the next plan takes the next ones.
MAX_WAITING: Final = 1000

# The search finds out whether the binding moves.
STAYS: Final = PlannedMove(why={})

# The moves of a plan, and how many bindings it did not look at.
_Drafted: TypeAlias = tuple[PlannedMoves, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWish:
    """The request for a plan.

    A drain empties ``clusters``, a failback moves the bindings in them, and the other kinds move
    bindings among them; none: all. ``cluster_selector`` names them by their labels instead.
    """

    kind: PlanKind
    clusters: tuple[str, ...] = ()
    cluster_selector: Mapping[str, str] = field(default_factory=dict)
    limits: PlanLimits = field(default_factory=PlanLimits)


class Drafting:
    """Reads the inputs of plans, and searches their moves in a thread of its own."""

    def __init__(
        self, store: Store, fleet: FleetOwner, pipeline: DecisionPipeline, clock: Clock
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline
        self._clock = clock

    async def draft(self, wish: PlanWish, by: str) -> tuple[Plan, Sequence[PlanStep]]:
        """Draft a plan.

        Raises InvalidRequest for clusters that do not exist, LimitExceeded while too many plans
        are drafted, and PreconditionFailed for too many bindings.
        """
        clusters, now = self._clusters(wish), self._clock.now()
        moves, beyond = await self._moves(wish, clusters, now)
        plan = Plan(
            id=0,
            kind=wish.kind,
            clusters=clusters,
            limits=wish.limits,
            step_count=len(moves.steps),
            gain=moves.gain,
            unfixed=moves.unfixed[:MAX_UNFIXED],
            unfixed_count=len(moves.unfixed) + beyond,
            created_at=now,
            created_by=by,
        )
        return plan, moves.steps

    async def _moves(self, wish: PlanWish, clusters: Sequence[str], now: float) -> _Drafted:
        match wish.kind:
            case PlanKind.DRAIN:
                return await self._drain(wish, clusters, now)
            case PlanKind.FAILBACK:
                return await self._fail_back(wish, clusters, now)
            case PlanKind.BALANCE:
                return await self._among(level_clusters, wish, clusters, now)
            case PlanKind.CONSOLIDATE:
                return await self._among(empty_clusters, wish, clusters, now)
            case PlanKind.UNSCHEDULABLE:
                return await self._make_room(wish, clusters, now)

    async def attempts(self, moves: Sequence[tuple[Binding, PlannedMove]]) -> list[Attempt]:
        """Return attempts at moves, with what the store knows of their bindings."""
        return await self._read(
            [
                Attempt(binding=binding, cause=AttemptCause.MOVED, stated=move)
                for binding, move in moves
            ]
        )

    async def _read(self, attempts: list[Attempt]) -> list[Attempt]:
        """Read some at a time, because other work has its turn on the event loop in between."""
        for start in range(0, len(attempts), READ_AT_ONCE):
            await self._pipeline.read(attempts[start : start + READ_AT_ONCE])
        return attempts

    async def _existing(self, bindings: Sequence[Binding], move: PlannedMove) -> list[Attempt]:
        """Return attempts at moves of the bindings that were not deleted meanwhile."""
        attempts = await self.attempts([(binding, move) for binding in bindings])
        return [attempt for attempt in attempts if not isinstance(attempt.error, NotFound)]

    def _clusters(self, wish: PlanWish) -> tuple[str, ...]:
        self._fleet.check_known(wish.clusters)
        if not wish.cluster_selector:
            return wish.clusters
        labels = wish.cluster_selector.items()
        clusters = self._fleet.snapshot.fleet.clusters
        names = tuple(cluster.name for cluster in clusters if labels <= cluster.labels.items())
        if not names:
            raise InvalidRequest.of("clusterSelector", "no cluster has all of these labels")
        return names

    async def _drain(self, wish: PlanWish, clusters: Sequence[str], now: float) -> _Drafted:
        bindings, beyond = await self._in(clusters)
        move = PlannedMove(why={name: f"{name} {TO_BE_EMPTIED}" for name in clusters})
        attempts = await self._existing(bindings, move)
        working = self._pipeline.working().closed(dict.fromkeys(clusters, TO_BE_EMPTIED))
        return await PLANNING.run(move_out, working, attempts, now, wish.limits), beyond

    async def _fail_back(self, wish: PlanWish, clusters: Sequence[str], now: float) -> _Drafted:
        bindings, beyond = await self._away(clusters)
        attempts = await self._existing(bindings, STAYS)
        for attempt in attempts:
            _fail_back(attempt)
        working = self._pipeline.working()
        return await PLANNING.run(move_out, working, attempts, now, wish.limits), beyond

    async def _among(
        self,
        search: Callable[..., PlannedMoves],
        wish: PlanWish,
        clusters: Sequence[str],
        now: float,
    ) -> _Drafted:
        """Move bindings among the clusters that they are in."""
        scope = frozenset(clusters or self._fleet.snapshot.names)
        bindings, beyond = await self._in(scope)
        if beyond:
            raise PreconditionFailed(
                f"More than {MAX_BINDINGS} bindings are in these clusters: name fewer of them.",
                reason="TOO_MANY_BINDINGS",
            )
        attempts = await self._existing(bindings, STAYS)
        working = self._pipeline.working()
        return await PLANNING.run(search, working, attempts, now, wish.limits, scope), 0

    async def _make_room(self, wish: PlanWish, clusters: Sequence[str], now: float) -> _Drafted:
        waiting = await self._waiting()
        scope = frozenset(clusters or self._fleet.snapshot.names)
        bindings, _ = await self._in(scope)
        attempts = await self._existing(bindings, STAYS)
        tries = await self._read(
            [
                Attempt(binding=stored.binding, cause=AttemptCause.RETRIED)
                for stored in waiting[:MAX_WAITING]
            ]
        )
        tries = [attempt for attempt in tries if attempt.error is None]
        working = self._pipeline.working()
        moves = await PLANNING.run(make_room, working, attempts, tries, now, wish.limits, scope)
        return moves, len(waiting[MAX_WAITING:])

    async def _waiting(self) -> Sequence[StoredBinding]:
        """Return the waiting bindings in the order of the queue."""
        waiting: list[StoredBinding] = []
        after, is_last = 0, False
        while not is_last:
            async with self._store.reading() as read:
                page = await read.bindings.waiting(after, READ_AT_ONCE)
            waiting += [stored for stored in page if stored.wait and stored.wait.is_tried]
            is_last = len(page) < READ_AT_ONCE
            after = page[-1].id if page else after
        return sorted(waiting, key=_queue_place)

    async def _in(self, clusters: Collection[str]) -> tuple[list[Binding], int]:
        """Return the first bindings in the clusters by name, and how many more there are."""
        return await self._pages(
            lambda read, after: read.failover.in_clusters(clusters, after, READ_AT_ONCE)
        )

    async def _away(self, clusters: Collection[str]) -> tuple[list[Binding], int]:
        """Return the first bindings that are not in their preferred affinity group.

        Only those in the clusters count; none: those in any. The second value is how many more
        there are in all clusters.
        """
        bindings, beyond = await self._pages(
            lambda read, after: read.plans.away(after, READ_AT_ONCE)
        )
        if clusters:
            names = frozenset(clusters)
            bindings = [
                binding
                for binding in bindings
                if any(target.name in names for target in binding.clusters)
            ]
        return bindings, beyond

    async def _pages(
        self, page_of: Callable[[Transaction, BindingName | None], Awaitable[Sequence[Binding]]]
    ) -> tuple[list[Binding], int]:
        bindings: list[Binding] = []
        beyond = 0
        after: BindingName | None = None
        while True:
            async with self._store.reading() as read:
                page = await page_of(read, after)
            places = MAX_BINDINGS - len(bindings)
            bindings += page[:places]
            beyond += len(page[places:])
            if len(page) < READ_AT_ONCE:
                return bindings, beyond
            after = page[-1].namespace, page[-1].name


def _queue_place(stored: StoredBinding) -> tuple[int, float, str]:
    since = stored.wait.place_at if stored.wait else 0.0
    return -stored.binding.priority, since, stored.binding.key


def _fail_back(attempt: Attempt) -> None:
    """Let the binding leave its clusters for an affinity group that it prefers to its own."""
    group = attempt.observed_affinity
    why = f"it prefers other affinity groups to {group}"
    leaves = {target.name: why for target in attempt.candidate.clusters}
    move = attempt.stated = PlannedMove(why=leaves, leaves_group=group)
    try:
        move.whole(attempt.candidate)
    except PreconditionFailed as error:
        attempt.error = attempt.error or error
