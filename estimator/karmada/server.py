"""Karmada's accurate estimator, served from this agent's picture of its cluster.

Must not read a message itself: ``karmada_messages`` does. Takes requests as bytes, so that one
that cannot be read is the caller's mistake and not ours.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from estimator.agent.agent import MemberCluster
from estimator.karmada import estimator_pb2 as karmada
from estimator.karmada.messages import (
    replicas_question,
    sets_question,
    unschedulable_question,
)
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    PreconditionFailed,
    Unavailable,
)
from federation.runtime.served_certificates import ServedCertificate, renewed_credentials
from federation.runtime.watched_files import FileWatch

SERVICE: Final = karmada.DESCRIPTOR.services_by_name["Estimator"].full_name
STOP_SECONDS: Final = 2.0
MAX_MESSAGE_CHARACTERS: Final = 1000

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
MethodHandler: TypeAlias = Callable[[bytes], Awaitable[bytes]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KarmadaSettings:
    """Where to serve, and by which certificates: PEM files; with ``client_ca``, clients need one
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
        self._member.asked(each.requirements.node_claim for each in question.components)
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
