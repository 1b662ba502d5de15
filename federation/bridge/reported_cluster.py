"""A cluster without an agent: the bridge reports its status from Karmada, as an agent would.

Must not claim to see nodes: it places nothing and estimates nothing exactly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple

import grpc.aio

from estimator.agent.agent import Agent, NodelessCluster
from estimator.agent.enrolment import ClusterIdentity, enrol
from estimator.agent.session import keep_connected
from estimator.agent.stream import Speaker, wait_until
from estimator.estimation.capacity import Capacity
from federation.bridge.objects import KarmadaCluster, ReadyReplicas
from federation.client import Client
from federation.codec.clusters import cluster_state_from_message
from federation.model.cluster import NodeSummary
from federation.model.echoes import Interest, InterestUpdate, SoughtShape
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    PermissionRefused,
)
from federation.model.grades import ResourceModel
from federation.model.shapes import Echo
from federation.runtime.backoff import Backoff
from federation.v1 import resource_pb2

# The version of a bridge, where an agent has its release.
AGENT_VERSION: Final = "karmada-bridge"
# The origin of the totals in reports.
SOURCE: Final = "karmada"
NO_NODES: Final = "no agent sees this cluster's nodes: its status comes from Karmada"
# How long a first report waits for Karmada's bindings, and for the interests of a stream.
LISTED_SECONDS: Final = 30.0
INTEREST_SECONDS: Final = 5.0
JOIN_TOKEN_SECONDS: Final = 600
# Karmada collects a ready cluster's status every 10 s, and writes it when it differs.
COLLECTED_SECONDS: Final = 30.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The way to the control plane, and the time: Unix seconds, and a steady clock.

    Clusters report once ``listed`` is set: from then on the ready replicas are known.
    """

    client: Client
    channel: Callable[[], grpc.aio.Channel]
    version: str
    clock: Callable[[], float]
    monotonic: Callable[[], float]
    listed: asyncio.Event


def has_agent(cluster: resource_pb2.Cluster) -> bool:
    """Whether an agent, and no bridge, reported the cluster last."""
    return not cluster.status.agent.version.startswith(AGENT_VERSION)


class _Reportable(NamedTuple):
    """A status as a capacity; None where it has none, or a wrong one."""

    capacity: Capacity | None


class ReportedCluster(NodelessCluster):
    """Reports one cluster until cancelled, or until an agent of its own takes over."""

    def __init__(
        self,
        line: Line,
        cluster: KarmadaCluster,
        message: resource_pb2.Cluster,
        warn: Callable[[str], None],
    ) -> None:
        """``warn`` is called once with the reason why a status cannot be reported."""
        super().__init__(NO_NODES)
        self.reported = asyncio.Event()
        self._line = line
        self._cluster = cluster
        self._message = message
        self._warn = warn
        self._warning = ""
        self._evidence = Evidence()
        self._interests: dict[str, Interest] = {}
        self._interest_version = 0
        self._news = asyncio.Event()
        self._model = ResourceModel()
        # The capacity of the newest message by the newest model; None: not worked out yet.
        self._capacity: _Reportable | None = None
        self._last_picture: tuple[Capacity | None, tuple[Echo, ...]] | None = None
        self._credential = ""
        self._last_epoch = 0

    def put(self, cluster: KarmadaCluster, message: resource_pb2.Cluster) -> None:
        """Take the cluster as it is now."""
        if message.status.resource_summary != self._message.status.resource_summary:
            self._evidence.totals_changed()
        self._cluster, self._message, self._capacity = cluster, message, None
        self._news.set()

    def put_ready(self, binding: str, replicas: ReadyReplicas) -> None:
        """Note the ready replicas of a binding."""
        if self._evidence.put(binding, replicas, self._line.monotonic()):
            self._news.set()

    async def run(self) -> None:
        """Report until cancelled. Raises PermissionRefused where the cluster has an agent by now,
        or the control plane refuses the bridge for good.
        """
        backoff, endless = Backoff(), asyncio.Event()
        await wait_until(self._line.listed, LISTED_SECONDS)
        while True:
            try:
                agent = Agent(
                    self, epoch=await self._enrol(), clock=self._line.clock, source=SOURCE
                )
                await keep_connected(
                    lambda: nullcontext(self._line.channel()),
                    agent,
                    self._speaker(),
                    endless,
                    backoff,
                )
            except PermissionRefused:
                raise
            except FederationError as error:
                logger.debug("cluster %s: %s", self._cluster.name, error.message)
            await asyncio.sleep(backoff.next_seconds())

    @property
    def credential(self) -> str:
        return self._credential

    async def replace(self, credential: str, expires_at: float) -> None:  # noqa: ARG002 - it ends with the process
        """Use a newer credential."""
        self._credential = credential

    def counting(self, model: ResourceModel) -> Callable[[], Capacity] | None:
        if model != self._model:
            self._model, self._capacity = model, None
        capacity, _ = self._last_picture = self._picture()
        if capacity is None:
            # Nothing is known: the cluster stays unknown, and nobody waits for its report.
            self.reported.set()
            return None
        counted = capacity
        return lambda: counted

    def look_for(self, update: InterestUpdate, now: float) -> Iterator[None]:  # noqa: ARG002 - evidence has its own times
        if self._evidence.take_over(update):
            self._news.set()
        if update.whole:
            self._interests = {}
        for binding in update.removed:
            self._interests.pop(binding, None)
        self._interests.update((interest.binding, interest) for interest in update.interests)
        self._interest_version = update.version or self._interest_version
        # Interests without any ready replica change no report.
        bindings = (*update.removed, *(interest.binding for interest in update.interests))
        if any(map(self._evidence.has, bindings)):
            self._news.set()
        return iter(())

    def echoes(self) -> tuple[int, tuple[Echo, ...]]:
        return self._interest_version, tuple(self._evidence.echoes(self._interests))

    def has_news(self) -> bool:
        return self._last_picture is not None and self._picture() != self._last_picture

    def _picture(self) -> tuple[Capacity | None, tuple[Echo, ...]]:
        """The capacity, None where there is none to report, and the echoes."""
        conditions = self._message.status.conditions
        is_ready = any(entry.type == "Ready" and entry.status == "True" for entry in conditions)
        self._evidence.count(self._line.monotonic(), is_ready=is_ready)
        if self._capacity is None:
            self._capacity = self._reportable()
        return self._capacity.capacity, self.echoes()[1]

    def _reportable(self) -> _Reportable:
        warning, capacity = "", None
        try:
            capacity = capacity_of(self._message, self._model, self._line.clock())
        except InvalidRequest as error:
            warning = f"the status of cluster {self._cluster.name}: {error.message}"
            if warning != self._warning:
                self._warn(warning)
        self._warning = warning
        return _Reportable(capacity)

    async def _enrol(self) -> int:
        """Get a credential where there is none, and return the epoch of the next session."""
        cluster, line = self._cluster, self._line
        created = await line.client.create_join_token(cluster.name, ttl_seconds=JOIN_TOKEN_SECONDS)
        enrolled = await enrol(
            line.channel(),
            ClusterIdentity(uid=cluster.identity, kubernetes_version=self._kubernetes_version()),
            cluster=cluster.name,
            token=created.token,
            version=line.version,
        )
        # An agent of its own that has joined by now is not driven out.
        if has_agent(await line.client.get_cluster(cluster.name)):
            raise PermissionRefused("an agent of its own speaks for it")
        self._credential = enrolled.credential
        self._interests, self._interest_version, self._last_picture = {}, 0, None
        # An agent that joins from now on has a newer session: agents number theirs by the clock.
        self._last_epoch = max(self._last_epoch, enrolled.last_epoch) + 1
        return self._last_epoch

    def _speaker(self) -> Speaker:
        return Speaker(
            cluster=self._cluster.name,
            bearer=self,
            agent_version=self._line.version,
            kubernetes_version=self._kubernetes_version,
            apis=self._apis,
            sees_nodes=False,
            interest_seconds=INTEREST_SECONDS,
            news=self._news,
            answered=self.reported.set,
            # A bridge speaks for many clusters, which all lose a control plane together.
            trouble_level=logging.DEBUG,
        )

    def _kubernetes_version(self) -> str:
        return self._message.status.kubernetes_version

    async def _apis(self) -> frozenset[tuple[str, str]]:
        return frozenset(
            (enablement.group_version, resource.kind)
            for enablement in self._message.status.api_enablements
            for resource in enablement.resources
        )


def capacity_of(message: resource_pb2.Cluster, model: ResourceModel, now: float) -> Capacity | None:
    """Return a Cluster's status as a capacity; None where it has none yet. Raises InvalidRequest.

    Grades count nodes by the model that the Cluster names: for another ``model`` they are left out.
    """
    status = message.status
    if not status.HasField("resource_summary"):
        return None
    if any(grade.count < 0 for grade in status.resource_summary.allocatable_modelings):
        # Karmada's own estimate falls back to the summary.
        message = _without_grades(message)
    state = cluster_state_from_message(message, now)
    if state.report is None:
        return None
    is_graded = bool(model.grades) and state.cluster.model == model
    grade_counts = state.report.grade_counts if is_graded else {}
    nodes = state.report.nodes
    return Capacity(
        summary=state.report.summary,
        nodes=NodeSummary(
            total=max(nodes.total, nodes.ready),
            ready=nodes.ready,
            graded=sum(grade_counts.values()),
        ),
        grade_counts=grade_counts,
    )


def _without_grades(message: resource_pb2.Cluster) -> resource_pb2.Cluster:
    copy = resource_pb2.Cluster()
    copy.CopyFrom(message)
    copy.status.resource_summary.ClearField("allocatable_modelings")
    return copy


class _Waiting(NamedTuple):
    """Ready replicas that totals of that number may not have yet, and since when."""

    ready: int
    totals: int
    since: float


class Evidence:
    """Promised replicas that are ready in one cluster, by binding.

    ``aggregatedStatus`` has no time: it counts once the cluster's own totals are newer, or where
    the control plane counts it already, as after a restart. ``now`` is of a steady clock.
    """

    def __init__(self) -> None:
        self._totals = 0
        self._waiting: dict[str, _Waiting] = {}
        self._counted: dict[str, int] = {}
        self._finished: dict[str, int] = {}
        # Bindings whose echoes this process has taken over, or made itself.
        self._taken_over: set[str] = set()

    def totals_changed(self) -> None:
        """Note that newer totals came: they have the replicas that were ready until now."""
        self._totals += 1

    def put(self, binding: str, replicas: ReadyReplicas, now: float) -> bool:
        """Note the ready replicas of a binding; return whether they changed."""
        # Finished replicas take no capacity any more, whatever the totals say.
        has_changed = replicas.finished != self._finished.pop(binding, 0)
        if replicas.finished:
            self._finished[binding] = replicas.finished
        return self._put_running(binding, replicas.running, now) or has_changed

    def _put_running(self, binding: str, ready: int, now: float) -> bool:
        waiting = self._waiting.get(binding)
        if ready == (waiting.ready if waiting else self._counted.get(binding, 0)):
            return False
        self._waiting.pop(binding, None)
        if ready <= self._counted.get(binding, 0):
            # Replicas that went are not counted any more, whatever the totals say.
            self._counted[binding] = ready
        else:
            self._waiting[binding] = _Waiting(ready, self._totals, now)
        return True

    def take_over(self, update: InterestUpdate) -> bool:
        """Count ready replicas that the control plane counts already, once for each binding.

        Another process counted them when the totals had them, or they ran before the binding was
        known: as long as they are ready they need no newer totals. Return whether there are any.
        """
        if update.whole and update.is_complete:
            self._taken_over.intersection_update(interest.binding for interest in update.interests)
        self._taken_over.difference_update(update.removed)
        are_taken = False
        for interest in update.interests:
            if interest.binding not in self._taken_over:
                self._taken_over.add(interest.binding)
                are_taken |= self._take_over(interest)
        return are_taken

    def _take_over(self, interest: Interest) -> bool:
        waiting, shape = self._waiting.get(interest.binding), _newest(interest)
        if waiting is None or shape is None:
            return False
        echoed = min(waiting.ready, shape.echoed)
        if echoed <= self._counted.get(interest.binding, 0):
            return False
        self._counted[interest.binding] = echoed
        if echoed == waiting.ready:
            del self._waiting[interest.binding]
        return True

    def has(self, binding: str) -> bool:
        """Whether some replicas of the binding are counted."""
        return bool(self._counted.get(binding) or self._finished.get(binding))

    def count(self, now: float, *, is_ready: bool) -> None:
        """Count the replicas that the totals have by now."""
        due = {
            binding: waiting.ready
            for binding, waiting in self._waiting.items()
            if waiting.totals < self._totals
            or (is_ready and now - waiting.since >= COLLECTED_SECONDS)
        }
        for binding in due:
            del self._waiting[binding]
        self._counted.update(due)

    def echoes(self, interests: Mapping[str, Interest]) -> Iterator[Echo]:
        """Yield an echo of the newest shape of each binding; components cannot be told apart."""
        for binding, interest in interests.items():
            ready, finished = self._counted.get(binding, 0), self._finished.get(binding, 0)
            shape = _newest(interest)
            if (ready or finished) and shape is not None:
                yield Echo(binding=binding, shape=shape.shape, bound=ready, finished=finished)


def _newest(interest: Interest) -> SoughtShape | None:
    return next((shape for shape in interest.shapes if not shape.component), None)
