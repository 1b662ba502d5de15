"""Kubernetes' pods as the extender and the binder judge them.

Pure. Must not judge: what cannot be judged from one node alone is only named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from estimator.binpack.arrays import ReplicaRequest
from estimator.kube.decoding import Watched
from estimator.kube.objects import (
    Affinity,
    Container,
    PodMetadata,
    PodSpec,
    PodStatus,
    RawObject,
    RawStored,
    version_number,
)
from estimator.kube.translate import (
    Untranslatable,
    belonging_of,
    pod_shape,
    requirements,
    unix_seconds,
)
from estimator.placement.incoming import IncomingPod
from estimator.unreadable import UNREADABLE
from federation.model.cluster import TaintEffect
from federation.model.quantity import QuantityError
from federation.model.resources import MAX_AMOUNT
from federation.model.workload import (
    NodeClaim,
    NodeSelectorTerm,
    Toleration,
    TolerationOperator,
)

MAX_REQUEST: Final = MAX_AMOUNT // 1000
# Volumes that every node can give; any other kind may bind a pod to some nodes.
_VOLUMES_OF_ANY_NODE: Final = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "projected", "secret"}
)


class IncomingMetadata(PodMetadata, frozen=True):
    deletion_timestamp: str | None = None


class RawToleration(RawObject, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class TopologySpread(RawObject, frozen=True):
    when_unsatisfiable: str = ""


class Port(RawObject, frozen=True):
    host_port: int | None = None


class IncomingContainer(Container, frozen=True):
    ports: list[Port] | None = None


class IncomingSpec(PodSpec, frozen=True):
    containers: Sequence[IncomingContainer] | None = None
    init_containers: Sequence[IncomingContainer] | None = None
    scheduler_name: str | None = None
    tolerations: list[RawToleration] | None = None
    topology_spread_constraints: list[TopologySpread] | None = None
    resource_claims: list[msgspec.Raw] | None = None
    volumes: list[dict[str, msgspec.Raw]] | None = None


class RawIncoming(RawStored, frozen=True):
    metadata: IncomingMetadata
    spec: IncomingSpec = IncomingSpec()
    status: PodStatus = PodStatus()


_decode = msgspec.json.Decoder(RawIncoming).decode


def read_incoming(content: bytes | msgspec.Raw) -> IncomingPod:
    """A pod out of its JSON. Raises Untranslatable."""
    try:
        return incoming_from_raw(_decode(content))
    except UNREADABLE as error:
        raise Untranslatable(f"not a pod: {error}") from error


def incoming_from_raw(raw: RawIncoming) -> IncomingPod:
    """Raises Untranslatable for what no API server stores."""
    metadata, spec = raw.metadata, raw.spec
    name = f"{metadata.namespace}/{metadata.name}"
    try:
        return IncomingPod(
            uid=metadata.uid or name,
            namespace=metadata.namespace or "",
            name=metadata.name,
            request=_countable(pod_shape(raw.spec, raw.status).request),
            node_claim=_node_claim(spec),
            node=spec.node_name or "",
            scheduler_name=spec.scheduler_name or "",
            priority=spec.priority or 0,
            created_at=unix_seconds(metadata.creation_timestamp),
            labels=metadata.labels or {},
            unjudged=tuple(_unjudged(spec)),
            held=_held(raw),
            is_prepared=bool(_prepared_volumes(spec) or spec.resource_claims),
            origin=belonging_of(metadata).origin,
            version=version_number(metadata.resource_version),
        )
    except (QuantityError, ValueError) as error:
        raise Untranslatable(f"pod {name}: {error}") from error


def _countable(request: ReplicaRequest) -> ReplicaRequest:
    """No node has as much as where amounts are cut off, and arrays hold no more."""
    views = (request.amounts, request.nonzero, request.nonzero_placed)
    amounts, nonzero, placed = (
        {name: min(amount, MAX_REQUEST) for name, amount in view.items()} for view in views
    )
    return ReplicaRequest(amounts=amounts, nonzero=nonzero, nonzero_placed=placed)


def _node_claim(spec: IncomingSpec) -> NodeClaim:
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    terms = None
    if required is not None:
        terms = tuple(
            NodeSelectorTerm(
                match_expressions=requirements(term.match_expressions),
                match_fields=requirements(term.match_fields),
            )
            for term in required.node_selector_terms or ()
        )
    return NodeClaim(
        node_selector=spec.node_selector or {},
        required_terms=terms,
        tolerations=tuple(_tolerations(spec.tolerations or ())),
    )


def _tolerations(raw: Iterable[RawToleration]) -> Iterator[Toleration]:
    for toleration in raw:
        operator = toleration.operator or TolerationOperator.EQUAL.value
        # An operator of a newer Kubernetes is not applied: the taint then keeps the pod away.
        if operator in set(TolerationOperator):
            yield Toleration(
                key=toleration.key or "",
                operator=TolerationOperator(operator),
                value=toleration.value or "",
                effect=TaintEffect(toleration.effect) if toleration.effect else None,
            )


def _unjudged(spec: IncomingSpec) -> Iterator[str]:
    affinity = spec.affinity or Affinity()
    if affinity.pod_affinity is not None and affinity.pod_affinity.required:
        yield "pod affinity"
    if affinity.pod_anti_affinity is not None and affinity.pod_anti_affinity.required:
        yield "pod anti-affinity"
    constraints = spec.topology_spread_constraints or ()
    if any(entry.when_unsatisfiable != "ScheduleAnyway" for entry in constraints):
        yield "topology spread constraints"
    for kind in sorted(_prepared_volumes(spec)):
        yield f"a {kind} volume"
    if spec.resource_claims:
        yield "resource claims"
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if any(port.host_port for entry in containers for port in entry.ports or ()):
        yield "host ports"


def _prepared_volumes(spec: IncomingSpec) -> set[str]:
    """The kinds of its volumes that are not on any node."""
    kinds = {kind for volume in spec.volumes or () for kind in volume if kind != "name"}
    return kinds - _VOLUMES_OF_ANY_NODE


def _held(raw: RawIncoming) -> str:
    if raw.metadata.deletion_timestamp is not None:
        return "is being deleted"
    return "has scheduling gates" if raw.spec.scheduling_gates else ""


NOT_ENDED: Final = "status.phase!=Succeeded,status.phase!=Failed"


def incoming_pods(scheduler_name: str) -> Watched[IncomingPod]:
    """Return the pods whose ``schedulerName`` this is, to be followed."""
    return Watched(
        name=f"pods of {scheduler_name}",
        path="/api/v1/pods",
        raw=RawIncoming,
        translate=incoming_from_raw,
        field_selector=f"spec.schedulerName={scheduler_name},{NOT_ENDED}",
    )
