"""kube-scheduler 1.36, simulated: its queue, its cycle, its bindings, its time, and its extender.

One cycle at a time: filter, extender, score, assume; the binding follows on its own. What found no
node waits for an event that may help it, and backs off. Nodes and pods are read, and selectors and
taints judged, by the product's code, which is held to recordings; the rest is made anew. Not
simulated: preemption, spreading and affinity between pods.
"""

from __future__ import annotations

import heapq
import http.client
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
import numpy as np

from estimator.estimation.fit import feasible_n
from estimator.kube.incoming import read_incoming
from estimator.nodes import Node
from estimator.placement.incoming import IncomingPod
from estimator.snapshot import NodeTable
from federation.model.arrays import BoolArray, IntArray
from lab.truth.scheduler_scores import Loads, Profile


class Timeline:
    """Events by time. Virtual seconds pass at once; with ``real``, a second is a second.

    ``now`` begins at 0. ``post`` is for other threads, where real seconds pass.
    """

    def __init__(self, *, real: bool = False) -> None:
        self._now = 0.0
        self._began_at = time.monotonic() if real else None
        self._serial = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._changed = threading.Condition()

    @property
    def now(self) -> float:
        return self._now

    def at(self, when: float, what: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._events, (when, next(self._serial), what))
            self._changed.notify()

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self._now + seconds, what)

    def post(self, what: Callable[[], None]) -> None:
        """As soon as may be."""
        self.at(-math.inf, what)

    def run(self, until: float = math.inf, *, idle: Callable[[], bool] | None = None) -> None:
        """Let happen what happens until then; without end, until nothing is left to happen.

        ``idle``, asked after every event, ends it earlier.
        """
        while (event := self._next(until)) is not None:
            event()
            if idle is not None and idle():
                return
        if math.isfinite(until):
            self._now = max(self._now, until)

    def _next(self, until: float) -> Callable[[], None] | None:
        with self._changed:
            while True:
                when = self._events[0][0] if self._events else math.inf
                if self._began_at is None:
                    if when > until or when == math.inf:
                        return None
                    self._now = max(self._now, when)
                    return heapq.heappop(self._events)[2]
                self._now = max(self._now, time.monotonic() - self._began_at)
                if when <= self._now:
                    return heapq.heappop(self._events)[2]
                if min(when, until) <= self._now or min(when, until) == math.inf:
                    return None
                self._changed.wait(min(when, until) - self._now)


MAX_WAITING_SECONDS = 300.0
EXTENDER_SCALE = 10


class ExtenderFailed(Exception):
    """The extender did not answer, or answered with an error: the pod's attempt fails with it."""


class BindRefused(Exception):
    """The API server did not bind the pod."""


class ExtenderClient(Protocol):
    """An extender as kube-scheduler asks it, nodes by name. Raises ExtenderFailed."""

    weight: int

    def filter(self, pod: bytes, nodes: list[str]) -> list[str]: ...

    def prioritize(self, pod: bytes, nodes: list[str]) -> dict[str, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long things take, in seconds: a cycle, and from its end until the pod is bound.

    Of a binding each time a random part between half and the whole.
    """

    cycle: float = 0.002
    bind: float = 0.05
    first_backoff: float = 1.0
    most_backoff: float = 10.0


class Outcome(StrEnum):
    ASSUMED = "has a node, and is being bound"
    UNSCHEDULABLE = "found no node"
    FAILED = "an error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One scheduling cycle."""

    at: float
    pod: str
    outcome: Outcome
    node: str = ""
    why: str = ""


class Place(Enum):
    """Where a pod is in the queue. After an error it backs off to the end."""

    ACTIVE = auto()
    BACKING_OFF = auto()
    AFTER_ERROR = auto()
    UNSCHEDULABLE = auto()


@dataclass(slots=True, kw_only=True, eq=False)
class _Queued:
    """A pod without a node, and how it fared so far."""

    pod: IncomingPod
    content: bytes
    order: int
    place: Place
    since: float
    failures: int = 0
    errors: int = 0
    by_extender: bool = False

    def ready_at(self, delays: Delays) -> float:
        """When its back-off ends."""
        count = self.errors or self.failures
        return self.since + min(delays.first_backoff * 2.0 ** (count - 1), delays.most_backoff)


@dataclass(slots=True, kw_only=True, eq=False)
class KubeScheduler:
    """Schedules on ``timeline``. ``bind`` writes the binding and may raise BindRefused.

    ``attempts`` are all cycles so far.
    """

    nodes: Iterable[Node]
    timeline: Timeline
    bind: Callable[[IncomingPod, str], None]
    random: np.random.Generator
    profile: Profile = field(default_factory=Profile)
    extender: ExtenderClient | None = None
    delays: Delays = field(default_factory=Delays)
    attempts: list[Attempt] = field(default_factory=list)
    _table: NodeTable = field(init=False)
    _loads: Loads = field(init=False)
    _on_node: dict[str, tuple[IncomingPod, str]] = field(default_factory=dict)
    _queue: dict[str, _Queued] = field(default_factory=dict)
    _active: list[tuple[int, int, str]] = field(default_factory=list)
    _serial: Iterator[int] = field(default_factory=itertools.count)
    _start: int = 0
    _is_due: bool = False

    def __post_init__(self) -> None:
        self._arrange(self.nodes)

    @property
    def pending(self) -> list[str]:
        """The uids of the pods without a node, assumed ones excepted."""
        return list(self._queue)

    def node_of(self, uid: str) -> str:
        """Where a pod is, or is assumed to be; empty: nowhere."""
        return self._on_node[uid][1] if uid in self._on_node else ""

    def put_nodes(self, nodes: Iterable[Node]) -> None:
        """These are all the nodes."""
        self._arrange(nodes)
        self._something_changed(frees=True)

    def put_pod(self, manifest: dict[str, Any]) -> None:
        """A pod is there, as the API server shows it: to be scheduled, or on its node."""
        content = msgspec.json.encode(manifest)
        pod = read_incoming(content)
        known = self._on_node.get(pod.uid)
        if pod.node:
            self._queue.pop(pod.uid, None)
            if known is not None and known[1] != pod.node:
                self._unload(pod.uid)
            if pod.uid not in self._on_node:
                self._load(pod, pod.node)
                self._something_changed(frees=False)
        elif known is None and pod.uid not in self._queue and not pod.held:
            queued = self._queue[pod.uid] = _Queued(
                pod=pod,
                content=content,
                order=next(self._serial),
                place=Place.ACTIVE,
                since=self.timeline.now,
            )
            self._activate(queued)

    def remove_pod(self, uid: str) -> None:
        """It was deleted, or has ended."""
        self._queue.pop(uid, None)
        if uid in self._on_node:
            self._unload(uid)
            self._something_changed(frees=True)

    def _arrange(self, nodes: Iterable[Node]) -> None:
        self._table = NodeTable.of(sorted(nodes, key=lambda node: node.name))
        self._loads = Loads(self._table)
        for pod, node in self._on_node.values():
            self._loads.add(pod.request, node, +1)

    def _load(self, pod: IncomingPod, node: str) -> None:
        self._on_node[pod.uid] = pod, node
        self._loads.add(pod.request, node, +1)

    def _unload(self, uid: str) -> None:
        pod, node = self._on_node.pop(uid)
        self._loads.add(pod.request, node, -1)

    def _activate(self, queued: _Queued) -> None:
        queued.place = Place.ACTIVE
        heapq.heappush(self._active, (-queued.pod.priority, queued.order, queued.pod.uid))
        self._go_on()

    def _go_on(self) -> None:
        if not self._is_due:
            self._is_due = True
            self.timeline.after(self.delays.cycle, self._cycle)

    def _cycle(self) -> None:
        self._is_due = False
        queued = self._pop()
        if queued is not None:
            self._try(queued)
            self._go_on()

    def _pop(self) -> _Queued | None:
        """The next pod: an active one, else the first that backs off, as of 1.33."""
        while self._active:
            queued = self._queue.get(heapq.heappop(self._active)[2])
            if queued is not None and queued.place is Place.ACTIVE:
                return queued
        backing_off = (each for each in self._queue.values() if each.place is Place.BACKING_OFF)
        return min(
            backing_off, key=lambda each: (each.ready_at(self.delays), each.order), default=None
        )

    def _try(self, queued: _Queued) -> None:
        pod = queued.pod
        try:
            rows, by_extender = self._feasible(queued)
            if not len(rows):
                self._found_none(queued, by_extender=by_extender)
                return
            node = self._table.nodes[self._best(queued, rows)].name
        except ExtenderFailed as error:
            self._failed(queued, str(error))
            return
        del self._queue[pod.uid]
        self._load(pod, node)
        self._record(pod, Outcome.ASSUMED, node=node)
        seconds = self.delays.bind * float(self.random.uniform(0.5, 1.0))
        self.timeline.after(seconds, lambda: self._bind(queued, node))

    def _bind(self, queued: _Queued, node: str) -> None:
        pod = queued.pod
        if self.node_of(pod.uid) != node:
            return
        try:
            self.bind(pod, node)
        except BindRefused as error:
            self._unload(pod.uid)
            self._queue[pod.uid] = queued
            self._failed(queued, str(error))
            self._something_changed(frees=True)
            return
        self._something_changed(frees=False)

    def _feasible(self, queued: _Queued) -> tuple[IntArray, bool]:
        """The rows that are left by all filters, and whether the extender took the last of them."""
        fits_n = feasible_n(self._table, queued.pod.node_claim) & self._loads.fits_n(
            queued.pod.request
        )
        rows = self._some(fits_n)
        if not len(rows) or self.extender is None:
            return rows, False
        names = [self._table.nodes[row].name for row in rows]
        kept = set(self.extender.filter(queued.content, names))
        if not kept <= set(names):
            raise ExtenderFailed("it named nodes that were not offered")
        return np.array([row for row in rows if self._table.nodes[row].name in kept], int), True

    def _some(self, fits_n: BoolArray) -> IntArray:
        """The first that fit, from where the last search ended: in large clusters not all."""
        size = len(fits_n)
        most = size
        if size >= 100:
            most = max(100, size * max(5, 50 - size // 125) // 100)
        order = (np.arange(size) + self._start) % max(size, 1)
        (places,) = np.nonzero(fits_n[order])
        places = places[:most]
        searched = int(places[-1]) + 1 if len(places) == most and size else size
        self._start = (self._start + searched) % max(size, 1)
        return order[places]

    def _best(self, queued: _Queued, rows: IntArray) -> int:
        """Among equals any."""
        if len(rows) == 1:
            return int(rows[0])
        score_i = self.profile.scores(self._table, self._loads, queued.pod)[rows]
        if self.extender is not None:
            names = [self._table.nodes[row].name for row in rows]
            try:
                points = self.extender.prioritize(queued.content, names)
            except ExtenderFailed:
                # Swallowed by kube-scheduler too: without points all are alike.
                points = {}
            weight = self.extender.weight * EXTENDER_SCALE
            score_i = score_i + np.array([weight * points.get(name, 0) for name in names])
        (best,) = np.nonzero(score_i == score_i.max())
        return int(rows[self.random.choice(best)])

    def _found_none(self, queued: _Queued, *, by_extender: bool) -> None:
        queued.failures += 1
        queued.errors = 0
        queued.by_extender = by_extender
        why = "the extender refused" if by_extender else "no node fits"
        self._record(queued.pod, Outcome.UNSCHEDULABLE, why=why)
        self._put_by(queued, Place.UNSCHEDULABLE, MAX_WAITING_SECONDS)

    def _failed(self, queued: _Queued, why: str) -> None:
        queued.errors += 1
        self._record(queued.pod, Outcome.FAILED, why=why)
        self._put_by(queued, Place.AFTER_ERROR, 0.0)

    def _put_by(self, queued: _Queued, place: Place, seconds: float) -> None:
        """Try it again after so long at the latest, and not before its back-off has ended."""
        queued.since, queued.place = self.timeline.now, place
        since = queued.since
        at = max(since + seconds, queued.ready_at(self.delays))

        def again() -> None:
            is_there = self._queue.get(queued.pod.uid) is queued
            if is_there and queued.place is not Place.ACTIVE and queued.since == since:
                self._activate(queued)

        self.timeline.at(at, again)

    def _something_changed(self, *, frees: bool) -> None:
        """What may fit now is tried again; what an extender refused, after any event."""
        for queued in list(self._queue.values()):
            if queued.place is Place.UNSCHEDULABLE and (frees or queued.by_extender):
                self._back_off(queued)

    def _back_off(self, queued: _Queued) -> None:
        """Until its time has come, or until there is nothing else to do."""
        queued.place = Place.BACKING_OFF
        self._go_on()

    def _record(self, pod: IncomingPod, outcome: Outcome, *, node: str = "", why: str = "") -> None:
        at = self.timeline.now
        self.attempts.append(Attempt(at=at, pod=pod.uid, outcome=outcome, node=node, why=why))


TIMEOUT_SECONDS = 5.0


class HttpExtender:
    """``url`` is its urlPrefix. ``refusals`` are the newest reasons, by node.

    ``before_filter`` has, by uid, a callback for the moment in which the pod's first call is under
    way.
    """

    def __init__(self, url: str, *, weight: int = 1) -> None:
        self.weight = weight
        self.refusals: dict[str, str] = {}
        self.before_filter: dict[str, Callable[[], None]] = {}
        self._url = urlsplit(url)
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def filter(self, pod: bytes, nodes: list[str]) -> list[str]:
        if self.before_filter:
            uid = msgspec.json.decode(pod)["metadata"]["uid"]
            self.before_filter.pop(uid, lambda: None)()
        answer = self._post("filter", pod, nodes)
        if answer.get("Error"):
            raise ExtenderFailed(answer["Error"])
        self.refusals = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
        kept: list[str] = answer["NodeNames"] or []
        return kept

    def prioritize(self, pod: bytes, nodes: list[str]) -> dict[str, int]:
        return {each["Host"]: each["Score"] for each in self._post("prioritize", pod, nodes)}

    def _post(self, verb: str, pod: bytes, nodes: list[str]) -> Any:
        body = msgspec.json.encode({"Pod": msgspec.Raw(pod), "Nodes": None, "NodeNames": nodes})
        try:
            status, content = self._exchange(verb, body)
        except (OSError, http.client.HTTPException) as error:
            raise ExtenderFailed(f"{verb}: {error!r}") from error
        if status != http.client.OK:
            raise ExtenderFailed(f"{verb}: HTTP status {status}")
        return msgspec.json.decode(content)

    def _exchange(self, verb: str, body: bytes) -> tuple[int, bytes]:
        if self._connection is not None:
            try:
                return self._ask(self._connection, verb, body)
            except ConnectionError:
                # The server closed it while nothing was asked; Go's client dials anew then, too.
                self.close()
        host, port = self._url.hostname or "", self._url.port
        self._connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        try:
            return self._ask(self._connection, verb, body)
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def _ask(
        self, connection: http.client.HTTPConnection, verb: str, body: bytes
    ) -> tuple[int, bytes]:
        path = f"{self._url.path.rstrip('/')}/{verb}"
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()
