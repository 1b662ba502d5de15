"""What is written to Karmada's API server: a binding's two patches, and events.

Must not decide what to write: ``patches`` does. What somebody else changed meanwhile is read again
and never undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from estimator.kube.access import decoded
from estimator.kube.calls import KubeCalls
from federation.bridge.karmada import (
    Document,
    KarmadaBinding,
    KarmadaCluster,
    RawBinding,
    binding_from_raw,
)
from federation.bridge.patches import (
    QUOTA_EXCEEDED,
    SCHEDULER_ERROR,
    BindingVerdict,
    closing_patch,
    event_body,
    events_of,
    main_patch,
    status_patch,
)
from federation.codec.clusters import CLUSTER_API_VERSION
from federation.model.errors import Conflict, FederationError, NotFound, PreconditionFailed

BINDING: Final = "/apis/work.karmada.io/v1alpha2/namespaces/{namespace}/resourcebindings/{name}"
CLUSTER_BINDING: Final = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings/{name}"
EVENTS: Final = "/api/v1/namespaces/{namespace}/events"
MERGE_PATCH: Final = "application/merge-patch+json"
NOT_BRIDGED: Final = "ClusterNotBridged"
TRIES: Final = 5
# Bindings whose events wait; those of more are not told.
MOST_UNTOLD: Final = 5_000

logger = logging.getLogger(__name__)


class Overtaken(Conflict):
    """The binding is another one by now, or asks for something else."""


class KarmadaWrites:
    """Writes of one scheduler. ``clock`` is in Unix seconds."""

    def __init__(
        self, calls: KubeCalls, telling: KubeCalls, scheduler: str, clock: Callable[[], float]
    ) -> None:
        """Events travel by ``telling``: they must not be in the way of patches."""
        self._calls = calls
        self._telling = telling
        self._untold = 0
        self._scheduler = scheduler
        self._clock = clock

    async def write(
        self, binding: KarmadaBinding, verdict: BindingVerdict
    ) -> tuple[KarmadaBinding, BindingVerdict]:
        """The binding as it is then, and what was told: where a webhook refuses, that.

        Raises Overtaken, NotFound, Unavailable and what else calls raise.
        """
        return await self._calls.in_thread(lambda: self._write(binding, verdict))

    async def close(self, binding: KarmadaBinding) -> KarmadaBinding:
        """Say that the newest generation asks for nothing new. Raises as ``write``."""
        return await self._calls.in_thread(
            lambda: self._patched(binding, closing_patch, status=True)
        )

    async def read(self, binding: KarmadaBinding) -> KarmadaBinding | None:
        """As it is now; None when it is not there any more."""
        try:
            return await self._calls.in_thread(lambda: self._read(binding))
        except NotFound:
            return None

    async def tell(self, binding: KarmadaBinding, verdict: BindingVerdict) -> None:
        """Events, for people: nothing depends on them."""
        if self._untold >= MOST_UNTOLD:
            return
        events = events_of(binding, verdict, scheduler=self._scheduler, now=self._now())
        self._untold += 1
        try:
            await self._telling.in_thread(lambda: self._tell(events))
        except FederationError as error:
            logger.info("no event at binding %s: %s", binding.key, error.message)
        finally:
            self._untold -= 1

    async def warn(self, cluster: KarmadaCluster, message: str) -> None:
        """An event at a cluster that cannot be bridged as it is."""
        about: Document = {
            "apiVersion": CLUSTER_API_VERSION,
            "kind": "Cluster",
            "name": cluster.name,
            "uid": cluster.uid,
        }
        event = event_body(
            about,
            scheduler=self._scheduler,
            is_warning=True,
            reason=NOT_BRIDGED,
            message=message,
            now=self._now(),
        )
        try:
            await self._telling.in_thread(lambda: self._tell([event]))
        except FederationError as error:
            logger.info("no event at cluster %s: %s", cluster.name, error.message)

    def _tell(self, events: list[Document]) -> None:
        for event in events:
            self._telling.call("POST", EVENTS, event, namespace=event["metadata"]["namespace"])

    def _write(
        self, binding: KarmadaBinding, verdict: BindingVerdict
    ) -> tuple[KarmadaBinding, BindingVerdict]:
        try:
            binding = self._patched(binding, lambda now: main_patch(now, verdict))
        except PreconditionFailed as error:
            verdict = _refused(error)
        now = self._now()
        written = self._patched(binding, lambda read: status_patch(read, verdict, now), status=True)
        return written, verdict

    def _patched(
        self,
        binding: KarmadaBinding,
        patch_of: Callable[[KarmadaBinding], Document | None],
        *,
        status: bool = False,
    ) -> KarmadaBinding:
        """The binding with what the patch says; read again as long as others are faster."""
        asked = binding
        for _ in range(TRIES):
            patch = patch_of(binding)
            if patch is None:
                return binding
            try:
                return self._call("PATCH", binding, patch, status=status)
            except Conflict:
                binding = self._read(binding)
                if (binding.uid, binding.generation) != (asked.uid, asked.generation):
                    raise Overtaken(f"binding {asked.key} was changed meanwhile") from None
        raise Overtaken(f"binding {asked.key} is changed again and again")

    def _read(self, binding: KarmadaBinding) -> KarmadaBinding:
        return self._call("GET", binding)

    def _call(
        self, verb: str, binding: KarmadaBinding, body: object = None, *, status: bool = False
    ) -> KarmadaBinding:
        path = BINDING if binding.namespace else CLUSTER_BINDING
        names = {"namespace": binding.namespace} if binding.namespace else {}
        content = self._calls.call(
            verb,
            f"{path}/status" if status else path,
            body,
            content_type=MERGE_PATCH,
            name=binding.name,
            **names,
        )
        return binding_from_raw(decoded(content, RawBinding))

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _refused(error: PreconditionFailed) -> BindingVerdict:
    reason = QUOTA_EXCEEDED if error.reason == QUOTA_EXCEEDED else SCHEDULER_ERROR
    return BindingVerdict(reason=reason, message=error.message.partition(": ")[2] or error.message)
