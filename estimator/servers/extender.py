"""The four verbs of kube-scheduler's extender, from the bytes of a request to its answer.

Must not speak HTTP. Verbs read the picture on the loop that owns it; long reading or writing
leaves for a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

import numpy as np

from estimator.binpack.arrays import ReplicaRequest
from estimator.binpack.profile import ScoringProfile
from estimator.binpack.strategy import MAX_NODE_SCORE, ScoreArray, Strategy
from estimator.binpack.volcano import VolcanoBinpack
from estimator.nodes import Pod
from estimator.placement.incoming import IncomingPod
from estimator.placement.judgement import Judgement, Positions
from estimator.servers.extender_wire import (
    error_answer,
    filter_answer,
    preempt_answer,
    prioritize_answer,
    read_bind,
    read_nodes,
    read_victims,
)
from estimator.watched_cluster import WatchedCluster
from federation.model.arrays import BoolArray, IntArray
from federation.model.errors import InvalidRequest, PermissionRefused, Unavailable

# Reading more than this takes longer than the loop may stand still.
THREAD_BYTES: Final = 256 * 1024

T = TypeVar("T")


class PodBinder(Protocol):
    """Binds pods to nodes."""

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        """Raises FederationError when the pod is not bound to that node."""
        ...


class Extender:
    """Answers kube-scheduler by one cluster's picture.

    ``read_pod`` raises ValueError for what is no pod. ``strategy_for`` picks by scheduler name and
    may raise InvalidRequest. Without ``binding`` nothing is bound, and ``unbound`` says why.
    """

    def __init__(
        self,
        cluster: WatchedCluster,
        strategy_for: Callable[[str], Strategy],
        read_pod: Callable[[bytes], IncomingPod],
        *,
        clock: Callable[[], float],
        binding: PodBinder | None,
        unbound: str = "",
    ) -> None:
        self._cluster = cluster
        self._strategy_for = strategy_for
        self._read_pod = read_pod
        self._clock = clock
        self._binding = binding
        self._unbound = unbound
        self._positions = Positions()

    async def filter(self, body: bytes) -> bytes:
        """Raises InvalidRequest, as all of them do."""
        offered = await _aside(len(body), partial(read_nodes, body))
        pod = self._pod(offered.pod)
        # Whoever asks again was not bound, and is on none of the nodes it was let on before.
        self._cluster.assumed.drop(pod.uid)
        judgement, positions = self._judged(pod)
        judged = verdicts(judgement, positions, offered.names)
        if judged.awaited and not judged.kept:
            # Of a refusal kube-scheduler would try again after an event; of an error, in a moment.
            return error_answer(
                f"{judged.awaited} nodes have room only if pods that were let on them just now are "
                "on others: ask again"
            )
        self._assume(judgement, judged.kept_n)
        return await _aside(
            len(body),
            partial(
                filter_answer,
                offered,
                judged.kept,
                judged.failed,
                judged.unresolvable,
            ),
        )

    async def prioritize(self, body: bytes) -> bytes:
        offered = await _aside(len(body), partial(read_nodes, body))
        judgement, positions = self._judged(self._pod(offered.pod))
        return prioritize_answer(points(judgement, positions, offered.names))

    async def preempt(self, body: bytes) -> bytes:
        """The nodes where the pod fits once the victims are gone; the victims as they came.

        A victim this agent has not seen frees nothing. A node without victims would be an error.
        """
        offered = await _aside(len(body), partial(read_victims, body))
        judgement, positions = self._judged(self._pod(offered.pod))
        victims_by_node = {}
        for node, victims in offered.victims.items():
            pods = (self._cluster.cache.pod(uid) for uid in victims.uids)
            leaving = [pod for pod in pods if pod is not None]
            if victims.uids and fits_without(judgement, positions, node, leaving):
                victims_by_node[node] = victims
        return preempt_answer(victims_by_node)

    async def bind(self, body: bytes) -> bytes:
        """Raises FederationError when the pod could not be bound."""
        order = read_bind(body)
        if self._binding is None:
            raise PermissionRefused(self._unbound)
        if order.node not in self._positions.of(self._cluster.cache.snapshot()):
            # The API server would bind to a node that does not exist.
            raise InvalidRequest.of("Node", f"{order.node!r}: {UNKNOWN_NODE}")
        await self._binding.bind(
            namespace=order.namespace, name=order.name, uid=order.uid, node=order.node
        )
        waiting = self._cluster.cache.pod(order.uid)
        if waiting is not None:
            self._cluster.cache.assume(waiting, order.node, self._clock())
        return error_answer("")

    def _pod(self, content: bytes) -> IncomingPod:
        try:
            return self._read_pod(content)
        except ValueError as error:
            raise InvalidRequest.of("Pod", str(error)) from error

    def _assume(self, judgement: Judgement, kept_n: BoolArray) -> None:
        """Count the pod on the nodes that it may get now."""
        pod, cache = judgement.pod, self._cluster.cache
        seen = cache.pod(pod.uid)
        if seen is not None and not seen.state.has_no_node_yet:
            return
        is_planned = bool((judgement.planned_n | ~kept_n).all())
        self._cluster.assumed.assume(
            pod.uid,
            pod.amounts,
            kept_n,
            cache.snapshot().table,
            self._clock(),
            judgement.promise if is_planned else None,
            is_prepared=pod.is_prepared,
            version=pod.version,
        )

    def _judged(self, pod: IncomingPod) -> tuple[Judgement, Mapping[str, int]]:
        """The pod against the cluster now, and the nodes' rows."""
        view = self._cluster.view()
        if view.is_blind:
            view.check()
        snapshot = self._cluster.cache.snapshot()
        if not len(snapshot):
            raise Unavailable("the agent knows no nodes yet")
        positions = self._positions.of(snapshot)
        claimed = self._cluster.claimed_for(pod, self._clock())
        strategy = self._strategy_for(pod.scheduler_name)
        return Judgement.of(pod, snapshot, positions, claimed, strategy), positions


async def _aside(size_bytes: int, work: Callable[[], T]) -> T:
    """``work``, in a thread when so many bytes make it long."""
    return await asyncio.to_thread(work) if size_bytes > THREAD_BYTES else work()


MAX_POINTS: Final = 10

UNKNOWN_NODE: Final = "the agent does not know this node"
KEPT_ELSEWHERE: Final = "room is kept for it on another node"
SCARCE: Final = "nearly all that is free is promised to others, so that another node comes first"
# A pod counts on every node it is let on until it is seen. Where claims leave room for fewer such
# pods than this, it is let on one node alone.
AMPLE_PODS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The verdict on the nodes of a request: each name is in one of the three.

    ``kept_n`` are the rows of those that are kept; ``awaited`` will do once pods that were let on
    them turn out to be elsewhere.
    """

    kept_n: BoolArray
    kept: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)
    awaited: int = 0


def verdicts(judgement: Judgement, positions: Mapping[str, int], names: Sequence[str]) -> Verdicts:
    """Which of the named nodes the pod may have.

    Unresolvable is what no leaving pod can change; there preemption need not look.
    """
    row_m = np.array([positions.get(name, -1) for name in names], dtype=np.int64)
    offered_n = np.zeros(judgement.arrays.size, dtype=np.bool_)
    offered_n[row_m[row_m >= 0]] = True
    withheld_n, why_withheld = withheld(judgement, offered_n)
    reasons, nevers = judgement.reasons(), judgement.never_n.tolist()
    for row in withheld_n.nonzero()[0].tolist():
        reasons[row] = why_withheld
    answer = Verdicts(
        kept_n=offered_n & judgement.fits_n & ~withheld_n,
        awaited=int((judgement.awaited_n & offered_n).sum()),
    )
    for name, row in zip(names, row_m.tolist(), strict=True):
        if row < 0:
            answer.failed[name] = UNKNOWN_NODE
        elif not reasons[row]:
            answer.kept.append(name)
        elif nevers[row]:
            answer.unresolvable[name] = reasons[row]
        else:
            answer.failed[name] = reasons[row]
    return answer


def withheld(judgement: Judgement, offered_n: BoolArray) -> tuple[BoolArray, str]:
    """Offered nodes that the pod would fit and is not let on all the same, and why.

    A promise's pod goes to one node where its room is kept, so that it counts there alone. Others
    leave nodes alone where claims leave little room, as long as there is another node; if there is
    none they get one of these.
    """
    fits_n = judgement.fits_n & offered_n
    planned_n = fits_n & judgement.planned_n
    if planned_n.any():
        return _all_but_best(judgement, planned_n, fits_n), KEPT_ELSEWHERE
    scarce_n = fits_n & judgement.others_n & ~judgement.own_n & ~judgement.ample_n(AMPLE_PODS)
    if scarce_n.any() and (scarce_n == fits_n).all():
        return _all_but_best(judgement, scarce_n, fits_n), SCARCE
    return scarce_n, SCARCE


def _all_but_best(judgement: Judgement, among_n: BoolArray, all_n: BoolArray) -> BoolArray:
    """All of them without the one among some that scores highest."""
    score_n = judgement.scores().astype(np.float64)
    others_n = all_n.copy()
    others_n[int(np.argmax(np.where(among_n, score_n, -np.inf)))] = False
    return others_n


def points(
    judgement: Judgement, positions: Mapping[str, int], names: Iterable[str]
) -> dict[str, int]:
    """0 to 10 for every named node; a node unknown here gets 0.

    Where room was claimed for such a pod it gets 10, and no other node then more than 9.
    """
    points_n = ten_points(judgement.strategy, judgement.pod.request, judgement.scores())
    if judgement.own_n.any():
        points_n = np.where(judgement.own_n, MAX_POINTS, np.minimum(points_n, MAX_POINTS - 1))
    points = points_n.tolist()
    rows = ((name, positions.get(name)) for name in names)
    return {name: 0 if row is None else points[row] for name, row in rows}


def fits_without(
    judgement: Judgement, positions: Mapping[str, int], node: str, victims: Iterable[Pod]
) -> bool:
    """Whether the pod fits the node once the victims, as far as they are on it, have left."""
    row = positions.get(node)
    leaving = (victim for victim in victims if victim.node == node)
    return row is not None and judgement.fits_without(row, leaving)


def ten_points(strategy: Strategy, request: ReplicaRequest, score_n: ScoreArray) -> IntArray:
    """Any strategy's scores as 0 to 10; all 0 where the strategy cannot tell nodes apart.

    Linear from its lowest score to its highest, to the nearest whole point, halves up. A score s
    of 0 to 100 becomes floor(s / 10 + 0.5), for example. kube-scheduler multiplies points by 10 and
    by the extender's weight. It clamps nothing, so no score may leave the range here.
    """
    lowest, highest = _range(strategy, request)
    if lowest == highest:
        return np.zeros(len(score_n), dtype=np.int64)
    points_n = np.floor((score_n - lowest) * MAX_POINTS / (highest - lowest) + 0.5)
    return np.clip(points_n, 0, MAX_POINTS).astype(np.int64)


def _range(strategy: Strategy, request: ReplicaRequest) -> tuple[int, int]:
    """The lowest and the highest score there can be."""
    if isinstance(strategy, VolcanoBinpack):
        max_score = MAX_NODE_SCORE * strategy.weight
        return min(0, max_score), max(0, max_score)
    if isinstance(strategy, ScoringProfile):
        weights = (plugin.weight for plugin in strategy.plugins if plugin.has_a_say(request))
        return 0, MAX_NODE_SCORE * sum(weights)
    return 0, MAX_NODE_SCORE
