"""What goes wrong with an API server: answers, watches, and objects that change all the time.

Must not decide what is right.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from lab.kubeapi.documents import node, pod
from lab.kubeapi.resources import NODES, PODS, Document
from lab.kubeapi.state import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it came in: its verb and target, as RBAC names them."""

    verb: str
    resource: str = ""
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer with this instead."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Answer rightly, so many of the server's seconds late."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Reset the connection instead of answering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Send so many whole lines of a stream, half of the next one, and reset the connection."""

    whole_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Never answer and never close; a watch that had begun says no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """Do something, then answer rightly."""

    act: Callable[[], object]


Action = Answer | Delay | Drop | Cut | Silence | First


@dataclass(slots=True, kw_only=True)
class _Fault:
    action: Action
    applies: Callable[[Asked], bool]
    left: int | None


class Faults:
    """The faults in force, first come first served. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []

    def add(
        self,
        action: Action,
        *,
        times: int | None = None,
        verb: str | None = None,
        resource: str | None = None,
        applies: Callable[[Asked], bool] = lambda _: True,
    ) -> None:
        """Do this to the next ``times`` requests that match, None meaning until cleared."""

        def matches(asked: Asked) -> bool:
            return (
                verb in (None, asked.verb) and resource in (None, asked.resource) and applies(asked)
            )

        with self._lock:
            self._faults.append(_Fault(action=action, applies=matches, left=times))

    @property
    def are_spent(self) -> bool:
        """Whether all that were to happen so many times have happened."""
        with self._lock:
            return all(fault.left == 0 for fault in self._faults)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def take(self, asked: Asked) -> Action | None:
        """The fault that befalls this request."""
        with self._lock:
            for fault in self._faults:
                if fault.left == 0 or not fault.applies(asked):
                    continue
                if fault.left is not None:
                    fault.left -= 1
                return fault.action
            return None


def throttled(retry_after_seconds: int) -> Answer:
    """What Priority and Fairness answers: no Status."""
    return Answer(
        status=429,
        body=b"Too many requests, please try again later.\n",
        content_type="text/plain; charset=utf-8",
        headers={"Retry-After": str(retry_after_seconds), "X-Content-Type-Options": "nosniff"},
    )


def bad_gateway(status: int = 503) -> Answer:
    """What a proxy in front of the API server answers: HTML."""
    return Answer(
        status=status,
        body=b"<html><body><h1>Service Unavailable</h1></body></html>\n",
        content_type="text/html",
    )


def server_error() -> Answer:
    return Answer(
        status=500,
        body=b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"etcdserver: leader changed","code":500}\n',
    )


ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePicture:
    """A node's cpu, and what the pods bound to it that have not ended take."""

    allocatable_cpu_millis: int
    requested_cpu_millis: int = 0
    pods: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What an agent that is in step knows."""

    nodes: dict[str, NodePicture]
    waiting_cpu_millis: int


class Churn:
    """Makes changes of a cluster that it fills."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._serial = itertools.count()
        for _ in range(3):
            self._add_node()

    def run(self, changes: int) -> None:
        for _ in range(changes):
            steps = (self._add_pod, self._bind, self._end, self._remove_pod, self._resize_node)
            weights = (5, 4, 1, 2, 1)
            self._random.choices(steps, weights)[0]()
        self._add_node()
        self._remove_node()

    def _add_node(self) -> None:
        self._cluster.put(node(f"n{next(self._serial)}", cpu="64"))

    def _remove_node(self) -> None:
        self._cluster.remove(self._random.choice(self._cluster.all(NODES)))

    def _resize_node(self) -> None:
        chosen = self._random.choice(self._cluster.all(NODES))
        cpu = str(self._random.randint(1, 64))
        self._cluster.put(node(chosen["metadata"]["name"], cpu=cpu))

    def _add_pod(self) -> None:
        self._cluster.put(pod(f"p{next(self._serial)}", cpu=f"{self._random.randint(1, 900)}m"))

    def _bind(self) -> None:
        waiting = [each for each in self._cluster.all(PODS) if "nodeName" not in each["spec"]]
        if not waiting:
            return
        chosen = self._random.choice(waiting)
        target = self._random.choice(self._cluster.all(NODES))
        spec = {**chosen["spec"], "nodeName": target["metadata"]["name"]}
        self._put({**chosen, "spec": spec}, phase="Running")

    def _end(self) -> None:
        running = [each for each in self._cluster.all(PODS) if "nodeName" in each["spec"]]
        if running:
            self._put(self._random.choice(running), phase=self._random.choice(ENDED))

    def _remove_pod(self) -> None:
        pods = self._cluster.all(PODS)
        if pods:
            self._cluster.remove(self._random.choice(pods))

    def _put(self, chosen: Document, *, phase: str) -> None:
        self._cluster.put({**chosen, "status": {"phase": phase}})


def picture_of(cluster: Cluster) -> Picture:
    """The truth, by the obvious loop."""
    nodes = {
        each["metadata"]["name"]: NodePicture(
            allocatable_cpu_millis=1000 * int(each["status"]["allocatable"]["cpu"])
        )
        for each in cluster.all(NODES)
    }
    waiting = 0
    for each in cluster.all(PODS):
        if each["status"]["phase"] in ENDED:
            continue
        cpu = each["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        cpu_millis = int(cpu.removesuffix("m"))
        on = each["spec"].get("nodeName")
        if on is None:
            waiting += cpu_millis
        elif on in nodes:
            nodes[on] = replace(
                nodes[on],
                requested_cpu_millis=nodes[on].requested_cpu_millis + cpu_millis,
                pods=nodes[on].pods + 1,
            )
    return Picture(nodes=nodes, waiting_cpu_millis=waiting)
