"""Drafts: what a plan of each kind looks at, and what it comes to.

Must not keep or move anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from federation.model.errors import InvalidRequest, NotFound, PreconditionFailed
from federation.model.placement import Binding, BindingName
from federation.plans.plan import Plan, PlanKind, PlanLimits, PlanStep
from federation.services.binding_ports import StoredBinding
from federation.services.fleet.registry import FleetOwner
from federation.services.plans.balancing import balanced
from federation.services.plans.consolidating import consolidated
from federation.services.plans.making_room import with_room
from federation.services.plans.planning import planned
from federation.services.plans.search import TO_BE_EMPTIED, PlannedMoves
from federation.services.ports import Clock, Store, Transaction
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.planned import PlannedMove
from federation.services.threads import PLANNING

# So many bindings are looked at for a plan, and so many of what it leaves are kept.
MOST_LOOKED_AT: Final = 20_000
MOST_UNFIXED: Final = 1000
READ_AT_ONCE: Final = 100
# Of those that wait so many get room by one plan; the next ones by the next.
MOST_WAITING: Final = 1000

# Whether it moves is to be found out.
STAYS: Final = PlannedMove(why={})

# What a plan moves, and how many bindings were not looked at.
_Drafted: TypeAlias = tuple[PlannedMoves, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWish:
    """What a plan is asked for. ``clusters`` are to be empty by the end of a drain, are those that
    a failback looks at, and those that others move among; none: all. ``cluster_selector`` names
    them by their labels instead.
    """

    kind: PlanKind
    clusters: tuple[str, ...] = ()
    cluster_selector: Mapping[str, str] = field(default_factory=dict)
    limits: PlanLimits = field(default_factory=PlanLimits)


class Drafting:
    """Reads what a plan needs, and has it worked out in a thread of its own."""

    def __init__(
        self, store: Store, fleet: FleetOwner, pipeline: DecisionPipeline, clock: Clock
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline
        self._clock = clock

    async def draft(self, wish: PlanWish, by: str) -> tuple[Plan, Sequence[PlanStep]]:
        """Raises InvalidRequest for clusters that do not exist, LimitExceeded when others plan
        already, and PreconditionFailed where there is too much to look at.
        """
        clusters, now = self._clusters(wish), self._clock.now()
        drafts: dict[PlanKind, Callable[[], Awaitable[_Drafted]]] = {
            PlanKind.DRAIN: partial(self._drain, wish, clusters, now),
            PlanKind.FAILBACK: partial(self._failback, wish, clusters, now),
            PlanKind.BALANCE: partial(self._among, balanced, wish, clusters, now),
            PlanKind.UNSCHEDULABLE: partial(self._make_room, wish, clusters, now),
            PlanKind.CONSOLIDATE: partial(self._among, consolidated, wish, clusters, now),
        }
        moves, beyond = await drafts[wish.kind]()
        plan = Plan(
            id=0,
            kind=wish.kind,
            clusters=clusters,
            limits=wish.limits,
            step_count=len(moves.steps),
            gain=moves.gain,
            unfixed=moves.unfixed[:MOST_UNFIXED],
            unfixed_count=len(moves.unfixed) + beyond,
            created_at=now,
            created_by=by,
        )
        return plan, moves.steps

    async def attempts(self, moves: Sequence[tuple[Binding, PlannedMove]]) -> list[Attempt]:
        """Attempts at moving bindings, with what the store knows of them; some at a time, as others
        have their turn on the event loop between.
        """
        made: list[Attempt] = []
        for start in range(0, len(moves), READ_AT_ONCE):
            part = [
                Attempt(binding=binding, is_moved=True, planned=move)
                for binding, move in moves[start : start + READ_AT_ONCE]
            ]
            await self._pipeline.read(part)
            made += part
        return made

    def _clusters(self, wish: PlanWish) -> tuple[str, ...]:
        self._fleet.check_known(wish.clusters)
        if not wish.cluster_selector:
            return wish.clusters
        wanted = wish.cluster_selector.items()
        clusters = self._fleet.snapshot.fleet.clusters
        names = tuple(each.name for each in clusters if wanted <= each.labels.items())
        if not names:
            raise InvalidRequest.of("clusterSelector", "no cluster has all of these labels")
        return names

    async def _drain(self, wish: PlanWish, clusters: Sequence[str], now: float) -> _Drafted:
        bindings, beyond = await self._in(clusters)
        why = {name: f"{name} {TO_BE_EMPTIED}" for name in clusters}
        move = PlannedMove(why=why)
        attempts = await self.attempts([(each, move) for each in bindings])
        working = self._pipeline.working().closed(dict.fromkeys(clusters, TO_BE_EMPTIED))
        return await PLANNING.run(planned, working, attempts, now, wish.limits), beyond

    async def _failback(self, wish: PlanWish, clusters: Sequence[str], now: float) -> _Drafted:
        bindings, beyond = await self._away(clusters)
        attempts = await self.attempts([(each, STAYS) for each in bindings])
        for attempt in attempts:
            _fail_back(attempt)
        working = self._pipeline.working()
        return await PLANNING.run(planned, working, attempts, now, wish.limits), beyond

    async def _among(
        self,
        move: Callable[..., PlannedMoves],
        wish: PlanWish,
        clusters: Sequence[str],
        now: float,
    ) -> _Drafted:
        """Of plans that move among clusters what is there already."""
        scope = frozenset(clusters or self._fleet.snapshot.names)
        bindings, beyond = await self._in(scope)
        if beyond:
            raise PreconditionFailed(
                f"More than {MOST_LOOKED_AT} bindings are in these clusters: name fewer of them.",
                reason="TOO_MANY_BINDINGS",
            )
        attempts = await self.attempts([(each, STAYS) for each in bindings])
        there = [each for each in attempts if not isinstance(each.error, NotFound)]
        working = self._pipeline.working()
        return await PLANNING.run(move, working, there, now, wish.limits, scope), 0

    async def _make_room(self, wish: PlanWish, clusters: Sequence[str], now: float) -> _Drafted:
        waiting = await self._waiting()
        scope = frozenset(clusters or self._fleet.snapshot.names)
        bindings, _ = await self._in(scope)
        attempts = await self.attempts([(each, STAYS) for each in bindings])
        wanting = [Attempt(binding=each.binding, again=True) for each in waiting[:MOST_WAITING]]
        for start in range(0, len(wanting), READ_AT_ONCE):
            await self._pipeline.read(wanting[start : start + READ_AT_ONCE])
        there = [each for each in attempts if not isinstance(each.error, NotFound)]
        still = [each for each in wanting if each.error is None]
        working = self._pipeline.working()
        moves = await PLANNING.run(with_room, working, there, still, now, wish.limits, scope)
        return moves, len(waiting[MOST_WAITING:])

    async def _waiting(self) -> Sequence[StoredBinding]:
        """Who waits, as the queue would place them."""
        found: list[StoredBinding] = []
        after, is_last = 0, False
        while not is_last:
            async with self._store.reading() as read:
                page = await read.bindings.waiting(after, READ_AT_ONCE)
            found += [each for each in page if each.wait is not None and each.wait.is_tried]
            is_last = len(page) < READ_AT_ONCE
            after = page[-1].id if page else after
        return sorted(found, key=_queue_place)

    async def _in(self, clusters: Collection[str]) -> tuple[list[Binding], int]:
        """Bindings that are in the clusters, the first ones by name, and how many more are."""
        return await self._found(
            lambda read, after: read.failover.in_clusters(clusters, after, READ_AT_ONCE)
        )

    async def _away(self, clusters: Collection[str]) -> tuple[list[Binding], int]:
        """The same of bindings that are not in the affinity group that they prefer to all others;
        of those in some clusters, none: of all.
        """
        found, more = await self._found(lambda read, after: read.plans.away(after, READ_AT_ONCE))
        there = [
            each
            for each in found
            if not clusters or not {target.name for target in each.clusters}.isdisjoint(clusters)
        ]
        return there, more

    async def _found(
        self, page_of: Callable[[Transaction, BindingName | None], Awaitable[Sequence[Binding]]]
    ) -> tuple[list[Binding], int]:
        found: list[Binding] = []
        more = 0
        after: BindingName | None = None
        while True:
            async with self._store.reading() as read:
                page = await page_of(read, after)
            room = MOST_LOOKED_AT - len(found)
            found += page[:room]
            more += len(page[room:])
            if len(page) < READ_AT_ONCE:
                return found, more
            after = page[-1].namespace, page[-1].name


def _queue_place(stored: StoredBinding) -> tuple[int, float, str]:
    since = stored.wait.place_at if stored.wait else 0.0
    return -stored.binding.priority, since, stored.binding.key


def _fail_back(attempt: Attempt) -> None:
    """It leaves wherever it is, for a group that comes before the one that it is in."""
    group = attempt.known.observed_affinity if attempt.known else ""
    why = f"it prefers other affinity groups to {group}"
    leaves = {each.name: why for each in attempt.candidate.clusters}
    attempt.planned = PlannedMove(why=leaves, leaves_group=group)
    try:
        attempt.planned.whole(attempt.candidate)
    except PreconditionFailed as error:
        attempt.error = attempt.error or error
