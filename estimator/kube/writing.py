"""What is written to the API server: bindings, events at pods, their condition, the binder's lease.

Must not decide what to write. Calls block, so each runs in a thread; none is repeated here but to
find out whether a binding whose answer was lost had been made.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from estimator.kube.access import JSON, connect, decoded, request
from estimator.kube.objects import RawObject, RawPod, Status
from estimator.kube.translate import unix_seconds
from estimator.lease import Lease
from estimator.placing.incoming import IncomingPod, PodEvent
from estimator.unreadable import UNREADABLE
from federation.model.errors import (
    Conflict,
    FederationError,
    NotFound,
    PermissionRefused,
    PreconditionFailed,
    Unavailable,
)

LEASE_NAME: Final = "fedsched-binder"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
LEASE: Final = f"{LEASES}/{LEASE_NAME}"
POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
EVENTS: Final = "/api/v1/namespaces/{namespace}/events"
MERGE_PATCH: Final = "application/strategic-merge-patch+json"
SCHEDULED: Final = "PodScheduled"
COMPONENT: Final = "fedsched-binpack"
THREADS: Final = 8
TIMEOUT_SECONDS: Final = (5.0, 10.0)

Answer = TypeVar("Answer")
_Object = dict[str, Any]


class _LeaseSpec(RawObject, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMetadata(RawObject, frozen=True):
    resource_version: str = ""


class _RawLease(RawObject, frozen=True):
    metadata: _LeaseMetadata = _LeaseMetadata()
    spec: _LeaseSpec = _LeaseSpec()


class KubeWrites:
    """Writes to one API server. ``clock`` is in Unix seconds; the lease is in ``namespace``.

    Methods raise NotFound, Conflict, PermissionRefused, PreconditionFailed and Unavailable.
    """

    def __init__(
        self, kubeconfig: Path | None, *, namespace: str, clock: Callable[[], float]
    ) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._clock = clock
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kube-writes")
        self._connecting = threading.Lock()
        self._api: client.ApiClient | None = None

    def close(self) -> None:
        """Take no more work; what runs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        """Returns when the pod is bound to that node, by this call or by one before."""
        await self._in_thread(lambda: self._bind(namespace, name, uid, node))

    async def tell(self, event: PodEvent) -> None:
        """Record an event; a warning also in the pod's condition PodScheduled."""
        await self._in_thread(lambda: self._tell(event))

    async def read_lease(self) -> Lease | None:
        return await self._in_thread(self._read_lease)

    async def write_lease(self, lease: Lease) -> None:
        """Raises Conflict when it was changed, or made, since it was read."""
        await self._in_thread(lambda: self._write_lease(lease))

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            self._call("POST", f"{POD}/binding", body, namespace=namespace, name=name)
        except (Conflict, Unavailable) as error:
            # The answer may be lost, and repeating a binding that was made is a conflict.
            if not self._is_bound(namespace, name, uid, node):
                raise error from None

    def _is_bound(self, namespace: str, name: str, uid: str, node: str) -> bool:
        try:
            pod = decoded(self._call("GET", POD, namespace=namespace, name=name), RawPod)
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
        self._call("POST", EVENTS, body, namespace=pod.namespace)
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
        if not _is_unscheduled(decoded(self._call("GET", POD, **names), RawPod)):
            condition["lastTransitionTime"] = now
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        self._call("PATCH", f"{POD}/status", patch, content_type=MERGE_PATCH, **names)

    def _read_lease(self) -> Lease | None:
        try:
            content = self._call("GET", LEASE, namespace=self._namespace)
        except NotFound:
            return None
        raw = decoded(content, _RawLease)
        return Lease(
            holder=raw.spec.holder_identity or "",
            duration_seconds=float(raw.spec.lease_duration_seconds or 0),
            acquired_at=unix_seconds(raw.spec.acquire_time),
            renewed_at=unix_seconds(raw.spec.renew_time),
            transitions=raw.spec.lease_transitions or 0,
            version=raw.metadata.resource_version,
        )

    def _write_lease(self, lease: Lease) -> None:
        metadata: _Object = {"name": LEASE_NAME, "namespace": self._namespace}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                **({"holderIdentity": lease.holder} if lease.holder else {}),
                "leaseDurationSeconds": int(lease.duration_seconds),
                "acquireTime": _microsecond(lease.acquired_at),
                "renewTime": _microsecond(lease.renewed_at),
                "leaseTransitions": lease.transitions,
            },
        }
        if lease.version:
            metadata["resourceVersion"] = lease.version
            self._call("PUT", LEASE, body, namespace=self._namespace)
        else:
            self._call("POST", LEASES, body, namespace=self._namespace)

    def _call(
        self, verb: str, path: str, body: object = None, *, content_type: str = JSON, **names: str
    ) -> bytes:
        """The body of the answer; once more with fresh credentials when they were refused."""
        prepared = partial(
            _answer, verb=verb, path=path, names=names, body=body, content_type=content_type
        )
        used = self._connected()
        try:
            return prepared(used)
        except PermissionRefused:
            with self._connecting:
                if self._api is used:
                    self._api = None
            return prepared(self._connected())

    def _connected(self) -> client.ApiClient:
        with self._connecting:
            if self._api is None:
                self._api = connect(self._kubeconfig)
            return self._api


def _is_unscheduled(pod: RawPod) -> bool:
    """Whether its condition says, with a time, that it has no node."""
    return any(
        each.type == SCHEDULED and each.status == "False" and each.last_transition_time
        for each in pod.status.conditions or ()
    )


def _answer(api: client.ApiClient, **asked: Any) -> bytes:
    try:
        content: bytes = request(api, timeout=TIMEOUT_SECONDS, **asked).data
    except ApiException as error:
        raise _refusal(error) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"the API server cannot be reached: {error}") from error
    return content


def _refusal(error: ApiException) -> FederationError:
    text = f"the API server answers {error.status}: {_message(error)}"
    match error.status:
        case 401:
            return PermissionRefused(text)
        case 404:
            return NotFound(text)
        case 409:
            return Conflict(text)
        case 429:
            return Unavailable(text)
        case status if status and 400 <= status < 500:
            return PreconditionFailed(text)
    return Unavailable(text)


def _message(error: ApiException) -> str:
    """What a Status says; proxies answer with something else."""
    try:
        return msgspec.json.decode(error.body or b"", type=Status).message
    except (*UNREADABLE, TypeError):
        return str(error.reason)


def _second(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _microsecond(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
