"""Writes to the API server: bindings, events at pods, their condition, the binder's lease.

Must not decide what to write. No call is repeated here but to find out whether a binding whose
answer was lost had been made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from estimator.kube.client import KubeClient, decoded
from estimator.kube.events import event_body, second_of
from estimator.kube.lease import KubeLease, Lease
from estimator.kube.objects import RawPod
from estimator.placement.incoming import IncomingPod, PodEvent
from federation.model.errors import Conflict, FederationError, Unavailable

LEASE_NAME: Final = "fedsched-binder"
POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
EVENTS: Final = "/api/v1/namespaces/{namespace}/events"
MERGE_PATCH: Final = "application/strategic-merge-patch+json"
SCHEDULED: Final = "PodScheduled"
COMPONENT: Final = "fedsched-binpack"
# Bindings travel side by side; more of them do not make an API server faster.
MAX_CONCURRENT: Final = 8


class KubeWrites:
    """Writes to one API server. ``clock`` is in Unix seconds; the lease is in ``namespace``.

    Methods raise NotFound, Conflict, PermissionRefused, PreconditionFailed and Unavailable.
    """

    def __init__(self, client: KubeClient, *, namespace: str, clock: Callable[[], float]) -> None:
        self._client = client
        self._lease = KubeLease(client, namespace=namespace, name=LEASE_NAME)
        self._clock = clock
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        """Returns when the pod is bound to that node, by this call or by one before."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        names = {"namespace": namespace, "name": name}
        async with self._slots:
            try:
                await self._client.request("POST", f"{POD}/binding", body, names=names)
            except (Conflict, Unavailable) as error:
                # The answer may be lost, and repeating a binding that was made is a conflict.
                if not await self._is_bound(names, uid, node):
                    raise error from None

    async def tell(self, event: PodEvent) -> None:
        """Record an event; a warning also in the pod's condition PodScheduled."""
        pod, now = event.pod, second_of(self._clock())
        about = {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        }
        body = event_body(
            about,
            component=COMPONENT,
            is_warning=event.is_warning,
            reason=event.reason,
            message=event.message,
            now=now,
        )
        await self._client.request("POST", EVENTS, body, names={"namespace": pod.namespace})
        if event.is_warning:
            await self._write_condition(pod, event.message, now)

    async def read_lease(self) -> Lease | None:
        return await self._lease.read_lease()

    async def write_lease(self, lease: Lease) -> None:
        """Raises Conflict when it was changed, or made, since it was read."""
        await self._lease.write_lease(lease)

    async def _is_bound(self, names: dict[str, str], uid: str, node: str) -> bool:
        try:
            pod = decoded(await self._client.request("GET", POD, names=names), RawPod)
        except FederationError:
            return False
        return pod.metadata.uid == uid and pod.spec.node_name == node

    async def _write_condition(self, pod: IncomingPod, message: str, now: str) -> None:
        """Write as kube-scheduler: the time is the one since which the pod has had no node.

        New words about it do not move it.
        """
        names = {"namespace": pod.namespace, "name": pod.name}
        condition = {
            "type": SCHEDULED,
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        current = decoded(await self._client.request("GET", POD, names=names), RawPod)
        if not _is_unscheduled(current):
            condition["lastTransitionTime"] = now
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        await self._client.request(
            "PATCH", f"{POD}/status", patch, content_type=MERGE_PATCH, names=names
        )


def _is_unscheduled(pod: RawPod) -> bool:
    """Whether its condition says, with a time, that it has no node."""
    return any(
        condition.type == SCHEDULED
        and condition.status == "False"
        and condition.last_transition_time
        for condition in pod.status.conditions or ()
    )
