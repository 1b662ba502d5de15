"""What is written to the API server: bindings, events at pods, their condition, the binder's lease.

Must not decide what to write. Calls block, so each runs in a thread; none is repeated here but to
find out whether a binding whose answer was lost had been made.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from estimator.kube.client import KubeCalls, decoded
from estimator.kube.leases import KubeLease
from estimator.kube.objects import RawPod
from estimator.lease import Lease
from estimator.placement.incoming import IncomingPod, PodEvent
from federation.model.errors import Conflict, FederationError, Unavailable

LEASE_NAME: Final = "fedsched-binder"
POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
EVENTS: Final = "/api/v1/namespaces/{namespace}/events"
MERGE_PATCH: Final = "application/strategic-merge-patch+json"
SCHEDULED: Final = "PodScheduled"
COMPONENT: Final = "fedsched-binpack"


class KubeWrites:
    """Writes to one API server. ``clock`` is in Unix seconds; the lease is in ``namespace``.

    Methods raise NotFound, Conflict, PermissionRefused, PreconditionFailed and Unavailable.
    """

    def __init__(
        self, kubeconfig: Path | None, *, namespace: str, clock: Callable[[], float]
    ) -> None:
        self._calls = KubeCalls(kubeconfig)
        self._lease = KubeLease(self._calls, namespace=namespace, name=LEASE_NAME)
        self._clock = clock

    def close(self) -> None:
        """Take no more work; what runs ends by itself."""
        self._calls.close()

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        """Returns when the pod is bound to that node, by this call or by one before."""
        await self._calls.in_thread(lambda: self._bind(namespace, name, uid, node))

    async def tell(self, event: PodEvent) -> None:
        """Record an event; a warning also in the pod's condition PodScheduled."""
        await self._calls.in_thread(lambda: self._tell(event))

    async def read_lease(self) -> Lease | None:
        return await self._lease.read_lease()

    async def write_lease(self, lease: Lease) -> None:
        """Raises Conflict when it was changed, or made, since it was read."""
        await self._lease.write_lease(lease)

    def _bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            self._calls.call("POST", f"{POD}/binding", body, namespace=namespace, name=name)
        except (Conflict, Unavailable) as error:
            # The answer may be lost, and repeating a binding that was made is a conflict.
            if not self._is_bound(namespace, name, uid, node):
                raise error from None

    def _is_bound(self, namespace: str, name: str, uid: str, node: str) -> bool:
        try:
            pod = decoded(self._calls.call("GET", POD, namespace=namespace, name=name), RawPod)
        except FederationError:
            return False
        return pod.metadata.uid == uid and pod.spec.node_name == node

    def _tell(self, event: PodEvent) -> None:
        pod, now = event.pod, _second(self._clock())
        body = {
            "metadata": {"generateName": f"{pod.name}.", "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
            },
            "type": "Warning" if event.is_warning else "Normal",
            "reason": event.reason,
            "message": event.message,
            "source": {"component": COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._calls.call("POST", EVENTS, body, namespace=pod.namespace)
        if event.is_warning:
            self._tell_condition(pod, event.message, now)

    def _tell_condition(self, pod: IncomingPod, message: str, now: str) -> None:
        """As kube-scheduler: the time is the one since which the pod has had no node.

        New words about it do not move it.
        """
        names = {"namespace": pod.namespace, "name": pod.name}
        condition = {
            "type": SCHEDULED,
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        if not _is_unscheduled(decoded(self._calls.call("GET", POD, **names), RawPod)):
            condition["lastTransitionTime"] = now
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        self._calls.call("PATCH", f"{POD}/status", patch, content_type=MERGE_PATCH, **names)


def _is_unscheduled(pod: RawPod) -> bool:
    """Whether its condition says, with a time, that it has no node."""
    return any(
        each.type == SCHEDULED and each.status == "False" and each.last_transition_time
        for each in pod.status.conditions or ()
    )


def _second(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
