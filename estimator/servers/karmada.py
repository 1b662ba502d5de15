"""Karmada's accurate estimator, served from this agent's picture of its cluster.

Must not answer from half a picture.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from estimator.agent.agent import MemberCluster
from estimator.karmada import estimator_pb2 as karmada
from estimator.nodes import WorkloadRef
from federation.codec.ranges import MAX_REPLICAS
from federation.codec.requirements import read_requirements
from federation.codec.violations import Violations
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    PreconditionFailed,
    Unavailable,
)
from federation.model.workload import Component, ReplicaRequirements
from federation.runtime.served_certificates import ServedCertificate, renewed_credentials
from federation.runtime.watched_files import FileWatch
from federation.v1 import resource_pb2

# Each is placed on all nodes one after the other; nobody waits for more than these.
MAX_COMPONENTS: Final = 10_000
NANOS_PER_SECOND: Final = 1_000_000_000

AnyMessage = TypeVar("AnyMessage", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasQuestion:
    """How many replicas fit beside the workloads that are assumed to be there already."""

    requirements: ReplicaRequirements
    assumed: tuple[tuple[Component, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetsQuestion:
    """How many whole sets of these components fit beside the assumed workloads."""

    components: tuple[Component, ...]
    assumed: tuple[tuple[Component, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnschedulableQuestion:
    """How many of an owner's pods have been found unschedulable for so long."""

    owner: WorkloadRef
    threshold_seconds: float


def replicas_question(content: bytes, cluster: str) -> ReplicasQuestion:
    """Raises InvalidRequest, also for a question about another cluster than ``cluster``."""
    violations = Violations()
    message = _decoded(content, karmada.MaxAvailableReplicasRequest)
    _check_cluster(message.cluster, cluster, violations)
    needs = message.replicaRequirements
    question = ReplicasQuestion(
        requirements=_requirements(needs, needs.namespace, "replicaRequirements", violations),
        assumed=_assumed(message.assumedWorkloads, violations),
    )
    violations.check()
    return question


def sets_question(content: bytes, cluster: str) -> SetsQuestion:
    """Raises InvalidRequest, also for a question about another cluster than ``cluster``."""
    violations = Violations()
    message = _decoded(content, karmada.MaxAvailableComponentSetsRequest)
    _check_cluster(message.cluster, cluster, violations)
    if not message.components:
        violations.add("components", "must name at least one component")
    question = SetsQuestion(
        components=_components(message.components, message.namespace, "components", violations),
        assumed=_assumed(message.assumedWorkloads, violations),
    )
    violations.check()
    return question


def unschedulable_question(content: bytes, cluster: str) -> UnschedulableQuestion:
    """Raises InvalidRequest, also for a question about another cluster than ``cluster``."""
    violations = Violations()
    message = _decoded(content, karmada.UnschedulableReplicasRequest)
    _check_cluster(message.cluster, cluster, violations)
    resource = message.resource
    for field, text in (("kind", resource.kind), ("name", resource.name)):
        if not text:
            violations.add(f"resource.{field}", "is required")
    violations.check()
    return UnschedulableQuestion(
        owner=WorkloadRef(kind=resource.kind, namespace=resource.namespace, name=resource.name),
        threshold_seconds=message.unschedulableThreshold / NANOS_PER_SECOND,
    )


def _check_cluster(named: str, cluster: str, violations: Violations) -> None:
    if named and named != cluster:
        violations.add("cluster", f"this estimator speaks for {cluster!r}, not for {named!r}")


def _assumed(
    messages: Sequence[karmada.AssumedWorkload], violations: Violations
) -> tuple[tuple[Component, ...], ...]:
    number = sum(len(message.components) for message in messages)
    if number > MAX_COMPONENTS:
        rule = f"must have at most {MAX_COMPONENTS} components together, not {number}"
        violations.add("assumedWorkloads", rule)
        return ()
    return tuple(
        _components(
            message.components,
            message.namespace,
            f"assumedWorkloads[{place}].components",
            violations,
        )
        for place, message in enumerate(messages)
    )


def _components(
    messages: Sequence[karmada.Component], namespace: str, path: str, violations: Violations
) -> tuple[Component, ...]:
    if len(messages) > MAX_COMPONENTS:
        violations.add(path, f"must be at most {MAX_COMPONENTS}, not {len(messages)}")
        return ()
    read = []
    for position, message in enumerate(messages):
        place = f"{path}[{position}]"
        if not 0 <= message.replicas <= MAX_REPLICAS:
            violations.add(
                f"{place}.replicas", f"must be 0 to {MAX_REPLICAS}, not {message.replicas}"
            )
        requirements = _requirements(
            message.replicaRequirements, namespace, f"{place}.replicaRequirements", violations
        )
        read.append(
            Component(name=message.name, replicas=message.replicas, requirements=requirements)
        )
    return tuple(read)


def _requirements(
    message: karmada.ReplicaRequirements | karmada.ComponentReplicaRequirements,
    namespace: str,
    path: str,
    violations: Violations,
) -> ReplicaRequirements:
    """The requirements, whichever of the two spellings each part has."""
    quantities = {name: quantity.string for name, quantity in message.resourceRequest.items()}
    for name, content in message.resourceRequestBytes.items():
        field = f"{path}.resourceRequestBytes[{name}]"
        quantities[name] = _read(content, karmada.Quantity, field, violations).string
    spelled = resource_pb2.ReplicaRequirements(
        # Kubernetes writes nothing at all for an amount that was never set.
        resource_request={name: text or "0" for name, text in quantities.items()},
        node_claim=_node_claim(message.nodeClaim, f"{path}.nodeClaim", violations),
        namespace=namespace,
        priority_class_name=message.priorityClassName,
    )
    return read_requirements(spelled, path, violations)


def _node_claim(
    message: karmada.NodeClaim, path: str, violations: Violations
) -> resource_pb2.NodeClaim:
    """Our messages have the numbers of Kubernetes' own, so its bytes are read into them."""
    affinity = message.nodeAffinityBytes
    has_affinity = message.HasField("nodeAffinityBytes")
    if message.HasField("nodeAffinity") and not has_affinity:
        affinity, has_affinity = message.nodeAffinity.SerializeToString(), True
    tolerations = [toleration.SerializeToString() for toleration in message.tolerations]
    tolerations.extend(message.tolerationsBytes)
    return resource_pb2.NodeClaim(
        node_selector=message.nodeSelector,
        hard_node_affinity=(
            _read(affinity, resource_pb2.NodeSelector, f"{path}.nodeAffinityBytes", violations)
            if has_affinity
            else None
        ),
        tolerations=[
            _read(
                content, resource_pb2.Toleration, f"{path}.tolerationsBytes[{position}]", violations
            )
            for position, content in enumerate(tolerations)
        ],
    )


def _decoded(content: bytes, kind: type[AnyMessage]) -> AnyMessage:
    try:
        return kind.FromString(content)
    except DecodeError as error:
        rule = f"is not a {kind.DESCRIPTOR.name} as protobuf"
        raise InvalidRequest.of("", rule) from error


def _read(content: bytes, kind: type[AnyMessage], path: str, violations: Violations) -> AnyMessage:
    """A message inside a field of bytes; an empty one, and a violation, where it is none."""
    try:
        return _decoded(content, kind)
    except InvalidRequest as error:
        violations.extend(replace(violation, field=path) for violation in error.violations)
        return kind()


SERVICE: Final = karmada.DESCRIPTOR.services_by_name["Estimator"].full_name
STOP_SECONDS: Final = 2.0
MAX_MESSAGE_CHARACTERS: Final = 1000

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
MethodHandler: TypeAlias = Callable[[bytes], Awaitable[bytes]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KarmadaSettings:
    """The endpoint to serve, and its certificates: PEM files; with ``client_ca``, clients need one
    of its certificates. Without a certificate the port speaks plain text.
    """

    host: str
    port: int
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None


class KarmadaEstimator:
    """Implements Karmada's Estimator for one cluster. Belongs to the loop that feeds it."""

    def __init__(self, cluster: str, member: MemberCluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._member = member
        self._clock = clock

    def handler(self) -> grpc.GenericRpcHandler:
        answers: dict[str, MethodHandler] = {
            "MaxAvailableReplicas": self.max_available_replicas,
            "MaxAvailableComponentSets": self.max_available_component_sets,
            "GetUnschedulableReplicas": self.unschedulable_replicas,
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(_guarded(answer))
                for name, answer in answers.items()
            },
        )

    async def max_available_replicas(self, content: bytes) -> bytes:
        question = replicas_question(content, self._cluster)
        exact = self._member.unclaimed(self._clock())
        self._member.asked([question.requirements.node_claim])
        if question.assumed:
            replicas = await asyncio.to_thread(
                exact.replicas, question.requirements, question.assumed
            )
        else:
            # A fifth of a millisecond: not worth a thread.
            replicas = exact.replicas(question.requirements)
        return karmada.MaxAvailableReplicasResponse(maxReplicas=replicas).SerializeToString()

    async def max_available_component_sets(self, content: bytes) -> bytes:
        question = sets_question(content, self._cluster)
        exact = self._member.unclaimed(self._clock())
        self._member.asked(component.requirements.node_claim for component in question.components)
        sets = await asyncio.to_thread(exact.sets, question.components, question.assumed)
        return karmada.MaxAvailableComponentSetsResponse(maxSets=sets).SerializeToString()

    async def unschedulable_replicas(self, content: bytes) -> bytes:
        question = unschedulable_question(content, self._cluster)
        replicas = self._member.unschedulable(
            question.owner, since=self._clock() - question.threshold_seconds
        )
        answer = karmada.UnschedulableReplicasResponse(unschedulableReplicas=replicas)
        return answer.SerializeToString()


def _guarded(answer: MethodHandler) -> Callable[[bytes, Context], Awaitable[bytes]]:
    """The same with errors as statuses; what nobody expected is logged and not told."""

    async def answered(content: bytes, context: Context) -> bytes:
        try:
            return await answer(content)
        except InvalidRequest as error:
            code, text = grpc.StatusCode.INVALID_ARGUMENT, error.message
        except Unavailable as error:
            code, text = grpc.StatusCode.UNAVAILABLE, error.message
        except FederationError as error:
            code, text = grpc.StatusCode.FAILED_PRECONDITION, error.message
        except Exception:
            logger.exception("a question of Karmada's could not be answered")
            code, text = grpc.StatusCode.INTERNAL, "the estimator failed; its log says how"
        # Not by abort: its error stays in a cycle with all frames that it passes through.
        context.set_code(code)
        context.set_details(text[:MAX_MESSAGE_CHARACTERS])
        return b""

    return answered


async def serve_karmada(
    settings: KarmadaSettings,
    estimator: KarmadaEstimator,
    stopping: asyncio.Event,
    files: FileWatch,
) -> None:
    """Serve until told to stop; TLS files are read again with ``files``.

    Raises PreconditionFailed when it cannot.
    """
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((estimator.handler(),))
    address = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{address}:{settings.port}"
    credentials = _credentials(settings, files)
    try:
        if credentials is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise PreconditionFailed(f"cannot serve Karmada on {address}: {error}") from error
    await server.start()
    logger.info(
        "serving Karmada's estimator on %s, %s",
        address,
        "plain text" if credentials is None else "TLS",
    )
    try:
        await stopping.wait()
    finally:
        await server.stop(STOP_SECONDS)


def _credentials(settings: KarmadaSettings, files: FileWatch) -> grpc.ServerCredentials | None:
    certificate, key, authority = settings.tls_cert, settings.tls_key, settings.client_ca
    if certificate is None or key is None:
        return None
    paths = [path for path in (certificate, key, authority) if path is not None]
    served = files.watch(
        "TLS of Karmada's port",
        paths,
        lambda: ServedCertificate.read(certificate, key, authority),
    )
    return renewed_credentials(lambda: served.value)
