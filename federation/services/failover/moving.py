"""Moves of bindings off clusters, the most urgent first, within the rate.

Must not decide where they go: an ordinary decision does. Belongs to the event loop of the control
plane with the duty.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from federation.failover.breaker import Breaker
from federation.failover.moves import (
    PREEMPTED,
    TAINT_UNTOLERATED,
    Move,
    leaves_at,
    moved_together,
    moves_of,
)
from federation.failover.rate import MoveAllowance, cost_of
from federation.model.cluster import Cluster
from federation.model.errors import FederationError
from federation.model.placement import Binding, BindingName, EvictionTask
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import Clock, Store
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.release import ReleaseService
from federation.services.scheduling.stated_moves import PendingPodsMove, UndoneEviction
from federation.services.troubles import tell
from federation.services.values import PlacedObserver, Scheduled

AT_ONCE = 200
# Thousands of bindings are read in pages of this size, between other work of the loop.
READ_AT_ONCE = 100
# Moves are planned again after this time, if no change of clusters comes first; after the longer
# one if there were none.
PLAN_SECONDS, IDLE_PLAN_SECONDS, COUNT_SECONDS = 30.0, 300.0, 60.0
PLANNING_SECONDS = 2.0
# Bindings that fit nowhere are tried again after a time that doubles.
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 5.0, 60.0
# A control plane that was not called for this long has not had the duty meanwhile.
AWAY_SECONDS = 5.0

logger = logging.getLogger(__name__)


# The moves of one decision.
_Group: TypeAlias = tuple[Move, ...]


class _Retry(NamedTuple):
    binding: Binding
    at: float
    after_seconds: float


class Moving:
    """The moves to make, as last read, and the rate that limits them."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        pipeline: DecisionPipeline,
        clock: Clock,
        placed: PlacedObserver,
        *,
        percent_a_minute: float,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline
        self._releases = ReleaseService(store, fleet, pipeline.following)
        self._clock = clock
        self._percent = percent_a_minute
        self._moves: list[Move] = []
        self._planned_for: Mapping[str, Cluster] = {}
        # Clusters in frozen places.
        self._held: Collection[str] = ()
        self._plan_again_at = 0.0
        self._planning: asyncio.Task[None] | None = None
        self._retries: dict[str, _Retry] = {}
        self._allowance = MoveAllowance(at=clock.now())
        self._replicas = 0
        self._count_again_at = 0.0
        self._moved = self._moved_replicas = 0
        self._placed = placed

    def close(self) -> None:
        """Stop reading."""
        if self._planning is not None:
            self._planning.cancel()

    def begin(self) -> None:
        """Let the allowance grow; to be called again and again, also without moves."""
        now = self._clock.now()
        if now - self._allowance.at > AWAY_SECONDS:
            self._allowance = MoveAllowance(at=now)
        self._allowance = self._allowance.later(now)

    async def move(self, breaker: Breaker) -> bool:
        """Move what may move now off clusters of places that are not frozen.

        Return whether the rate holds up others.
        """
        now = self._clock.now()
        all_evacuated = self._fleet.snapshot.fleet.evacuated()
        clusters = {
            name: cluster for name, cluster in all_evacuated.items() if not breaker.holds(cluster)
        }
        self._held = all_evacuated.keys() - clusters.keys()
        if clusters != self._planned_for or (clusters and now >= self._plan_again_at):
            if self._planning is None:
                self._planning = asyncio.create_task(self._plan(clusters))
            # Planning for very many bindings lasts, and other work must not wait for it.
            await asyncio.wait({self._planning}, timeout=PLANNING_SECONDS)
            if not self._planning.done():
                return True
            planning, self._planning = self._planning, None
            await planning
        begun = moved_together(move for move in self._moves if move.due_at <= now)
        due = [group for group in begun if self._is_due(group, now)]
        if not due:
            return False
        await self.count()
        batch: list[tuple[_Group, int, float]] = []
        for group in due[:AT_ONCE]:
            replicas = [move.replicas(clusters, now) for move in group]
            cost = self.may_move(*replicas)
            if cost is None:
                break
            batch.append((group, sum(replicas), cost))
        await asyncio.gather(*(self._move(group, n, cost, clusters) for group, n, cost in batch))
        return len(batch) < len(due)

    def may_move(self, *replicas: int) -> float | None:
        """Take the cost of moving bindings with these replicas; None: not yet."""
        cost = sum(cost_of(count, self.replicas_a_minute) for count in replicas)
        allowance = self._allowance.taken(cost)
        if allowance is None:
            return None
        self._allowance = allowance
        return cost

    def not_moved(self, cost: float) -> None:
        """Give back the cost of a move that was not made."""
        self._allowance = self._allowance.given_back(cost)

    @property
    def replicas_a_minute(self) -> float:
        """The rate, by the replicas as last counted."""
        return self._replicas * self._percent / 100

    async def take_back(self, binding: Binding, task: EvictionTask) -> bool:
        """Take an eviction back; return whether the binding is in its cluster again."""
        try:
            scheduled = await self._pipeline.move(binding, UndoneEviction(task=task))
        except FederationError as error:
            logger.info("eviction not taken back", extra={"fields": _fields(binding, error)})
            return False
        is_back = task.from_cluster in _names(scheduled)
        if is_back:
            tell([self._placed], [scheduled])
        return is_back

    async def retake(self, binding: Binding, retaking: PendingPodsMove) -> bool:
        """Promise replicas that run nowhere elsewhere; return whether that was done."""
        try:
            scheduled = await self._pipeline.move(binding, retaking)
        except FederationError as error:
            logger.info("pending pods not taken back", extra={"fields": _fields(binding, error)})
            return False
        if scheduled.binding is None:
            return False
        fields = {"binding": binding.key, "why": "; ".join(map(str, retaking.triggers))}
        logger.info("pending pods taken back", extra={"fields": fields})
        tell([self._placed], [scheduled])
        return True

    async def read_unknown(self, clusters: Iterable[str]) -> None:
        """Bring clusters into the fleet that the journal has not shown here yet."""
        await self._pipeline.following.read_unknown(clusters)

    async def look_no_more(self, name: BindingName, tasks: Iterable[EvictionTask]) -> None:
        """Stop looking for the pods of evictions that are over.

        A plan looks for its own pods until they are gone.
        """
        for task in tasks:
            if task.reason in (PREEMPTED, TAINT_UNTOLERATED):
                await self._releases.stop_watching(name, task.from_cluster)

    async def _move(
        self, group: _Group, replicas: int, cost: float, clusters: Mapping[str, Cluster]
    ) -> None:
        bindings = [move.binding for move in group]
        if await self._have_left(bindings, clusters):
            self._moved += len(group)
            self._moved_replicas += replicas
            for move in group:
                self._moves.remove(move)
                self._retries.pop(move.binding.key, None)
            return
        self.not_moved(cost)
        retries = [retry for binding in bindings if (retry := self._retries.get(binding.key))]
        doubled = max((retry.after_seconds * 2 for retry in retries), default=FIRST_RETRY_SECONDS)
        wait = min(doubled, LAST_RETRY_SECONDS)
        for binding in bindings:
            self._retries[binding.key] = _Retry(binding, self._clock.now() + wait, wait)

    async def _have_left(
        self, bindings: Sequence[Binding], clusters: Mapping[str, Cluster]
    ) -> bool:
        """Move bindings by one commit; return whether all have left."""
        now = self._clock.now()
        try:
            if len(bindings) == 1:
                moved = [await self._pipeline.move(bindings[0])]
            else:
                moved = await all_answers(self._pipeline.move_together(bindings))
        except FederationError as error:
            # It is gone, suspended, or changed by others: the next plan will show.
            logger.info("binding not moved", extra={"fields": _fields(bindings[0], error)})
            return False
        for binding, scheduled in zip(bindings, moved, strict=True):
            stays = _names(scheduled) & clusters.keys()
            if any(leaves_at(binding, clusters[name]) <= now for name in stays):
                return False
        tell([self._placed], moved)
        return True

    def _is_due(self, group: _Group, now: float) -> bool:
        """Whether no move of the group waits for another try."""
        retries = (self._retries.get(move.binding.key) for move in group)
        return all(retry is None or retry.at <= now for retry in retries)

    async def _plan(self, clusters: Mapping[str, Cluster]) -> None:
        """Read the bindings in these clusters, and sort their moves."""
        moves: list[Move] = []
        after: BindingName | None = None
        while clusters:
            async with self._store.reading() as read:
                page = await read.failover.in_clusters(clusters.keys(), after, READ_AT_ONCE)
            moves += moves_of(page, clusters)
            if len(page) < READ_AT_ONCE:
                break
            after = page[-1].namespace, page[-1].name
        self._moves = sorted(moves, key=lambda move: move.urgency)
        self._planned_for = clusters
        pause = PLAN_SECONDS if self._moves else IDLE_PLAN_SECONDS
        self._plan_again_at = self._clock.now() + pause
        await self._settle()
        self._tell()

    async def _settle(self) -> None:
        """Decide bindings again that fitted nowhere and may stay after all."""
        planned = {move.binding.key for move in self._moves}
        stay = [self._retries.pop(key).binding for key in self._retries.keys() - planned]
        again = [self._pipeline.move(binding) for binding in stay if not self._is_held(binding)]
        await asyncio.gather(*again, return_exceptions=True)

    def _is_held(self, binding: Binding) -> bool:
        return any(target.name in self._held for target in binding.clusters)

    def _tell(self) -> None:
        """Log what was moved since the last time."""
        if not self._moved:
            return
        fields = {
            "bindings": self._moved,
            "replicas": self._moved_replicas,
            "waiting": len(self._moves),
            "fit_nowhere": len(self._retries),
        }
        logger.info("bindings moved", extra={"fields": fields})
        self._moved = self._moved_replicas = 0

    async def count(self) -> None:
        """Count the replicas of the fleet, unless that was done lately."""
        now = self._clock.now()
        if now < self._count_again_at:
            return
        async with self._store.reading() as read:
            self._replicas = await read.failover.replicas()
        self._count_again_at = now + COUNT_SECONDS


async def all_answers(answers: Sequence[asyncio.Future[Scheduled]]) -> list[Scheduled]:
    """Return all answers. Raises the first error once all are answered."""
    ended = await asyncio.gather(*answers, return_exceptions=True)
    for answer in ended:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in ended if not isinstance(answer, BaseException)]


def _names(scheduled: Scheduled) -> frozenset[str]:
    binding = scheduled.binding
    return frozenset(target.name for target in binding.clusters) if binding else frozenset()


def _fields(binding: Binding, error: Exception) -> Mapping[str, object]:
    return {"binding": binding.key, "why": str(error)}
