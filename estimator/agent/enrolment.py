"""Joining: a join token for a credential, and the control plane's pinned authority.

Must not keep the token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_status import rpc_status

from estimator.nodes import Node
from federation.codec.timestamps import seconds_from_timestamp
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    PermissionRefused,
    Unauthenticated,
    Unavailable,
)
from federation.v1.clusters_pb2 import EnrollClusterRequest
from federation.v1.clusters_pb2_grpc import ClustersStub

ENROL_TIMEOUT_SECONDS: Final = 20.0
REGION_LABEL: Final = "topology.kubernetes.io/region"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"

# Statuses that a later try meets again, until somebody acts.
LASTING: Final = frozenset(
    {
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ALREADY_EXISTS,
    }
)
# The credential, or the cluster with it, is not known any more: another join token helps.
_CREDENTIAL_GONE: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.NOT_FOUND})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """A cluster's identity when it joins. ``uid`` is its kube-system namespace's."""

    uid: str
    kubernetes_version: str = ""
    provider: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()


def identity_of(
    nodes: Iterable[Node], *, uid: str, kubernetes_version: str = ""
) -> ClusterIdentity:
    """An identity with what the nodes say: where they are, who provides them, what they run.

    A region or provider is named when all nodes that name one agree; the version, when the API
    server did not tell, is the one most kubelets have.
    """
    nodes = list(nodes)
    regions = {node.labels[REGION_LABEL] for node in nodes if REGION_LABEL in node.labels}
    providers = {scheme for node in nodes if (scheme := node.provider_id.partition("://")[0])}
    versions = Counter(node.kubelet_version for node in nodes if node.kubelet_version)
    most_common = max(versions, key=lambda version: (versions[version], version), default="")
    return ClusterIdentity(
        uid=uid,
        kubernetes_version=kubernetes_version or most_common,
        provider=providers.pop() if len(providers) == 1 else "",
        region=regions.pop() if len(regions) == 1 else "",
        zones=tuple(
            sorted({node.labels[ZONE_LABEL] for node in nodes if ZONE_LABEL in node.labels})
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """The credential that a join token was exchanged for. ``expires_at`` is in Unix seconds.

    ``last_epoch`` is the newest session that the control plane knows of this cluster.
    """

    credential: str
    expires_at: float
    last_epoch: int


async def enrol(
    channel: grpc.aio.Channel, identity: ClusterIdentity, *, cluster: str, token: str, version: str
) -> Enrolled:
    """Join. Raises Unavailable when trying again may help, else Unauthenticated for the token's
    sake and PermissionRefused for any other.
    """
    request = EnrollClusterRequest(
        cluster=cluster,
        token=token,
        cluster_uid=identity.uid,
        kubernetes_version=identity.kubernetes_version,
        agent_version=version,
        provider=identity.provider,
        region=identity.region,
        zones=identity.zones,
    )
    try:
        answer = await ClustersStub(channel).EnrollCluster(request, timeout=ENROL_TIMEOUT_SECONDS)
    except grpc.aio.AioRpcError as error:
        raise refusal(error, f"cluster {cluster} could not join") from error
    return Enrolled(
        credential=answer.credential,
        expires_at=seconds_from_timestamp(answer.expire_time) or 0.0,
        last_epoch=answer.last_epoch,
    )


def reason_of(error: grpc.aio.AioRpcError) -> tuple[str | None, dict[str, str]]:
    """Return why a call was refused, for programs, and its facts; None where it does not say."""
    call_error: Any = error
    status, info = rpc_status.from_call(call_error), ErrorInfo()
    for detail in status.details if status is not None else ():
        if detail.Unpack(info):
            return info.reason, dict(info.metadata)
    return None, {}


def refusal(
    error: grpc.aio.AioRpcError, what: str, lasting: Collection[grpc.StatusCode] = LASTING
) -> FederationError:
    """Unauthenticated or PermissionRefused for a status that will stay, else Unavailable."""
    message = f"{what}: {error.details() or error.code().name}"
    if error.code() in _CREDENTIAL_GONE:
        return Unauthenticated(message)
    return PermissionRefused(message) if error.code() in lasting else Unavailable(message)


MAX_CA_BYTES: Final = 64 * 1024
FETCH_TIMEOUT_SECONDS: Final = 10.0

_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)


def parse_fingerprint(text: str) -> str:
    """SHA-256 in lower-case hex; colons, blanks and a leading ``sha256:`` are taken too.

    Raises ValueError with the rule that is broken.
    """
    digits = re.sub(r"[:\s]", "", text.lower().removeprefix("sha256:"))
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise ValueError("must be a SHA-256 in hex, 64 digits")
    return digits


def fetch_pinned_ca(url: str, fingerprint: str) -> bytes:
    """PEM of the certificate at ``url`` whose DER form has this SHA-256, and of no other.

    Blocks. Raises Unavailable when it cannot be fetched, PermissionRefused when it is another.
    """
    text = _fetch(url).decode("ascii", errors="replace")
    match = _CERTIFICATE.search(text)
    if match is None:
        raise PermissionRefused(f"{url} holds no PEM certificate")
    try:
        der = ssl.PEM_cert_to_DER_cert(match[0])
    except ValueError as error:
        raise PermissionRefused(f"{url} holds a certificate that cannot be read") from error
    digest = hashlib.sha256(der).hexdigest()
    if not hmac.compare_digest(digest, fingerprint):
        raise PermissionRefused(
            f"the CA certificate at {url} is not the pinned one: its SHA-256 is {digest}, "
            f"--ca-sha256 says {fingerprint}"
        )
    return ssl.DER_cert_to_PEM_cert(der).encode("ascii")


def _fetch(url: str) -> bytes:
    if urlsplit(url).scheme not in ("http", "https"):
        raise InvalidRequest.of("--ca-url", "must be an http:// or https:// address")
    try:
        with urllib.request.urlopen(url, timeout=FETCH_TIMEOUT_SECONDS) as answer:  # noqa: S310 - scheme checked above
            content: bytes = answer.read(MAX_CA_BYTES + 1)
    except urllib.error.HTTPError as error:
        raise Unavailable(f"{url} answers {error.code} {error.reason}") from error
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Unavailable(f"{url} cannot be fetched: {reason}") from error
    if len(content) > MAX_CA_BYTES:
        raise PermissionRefused(f"{url} holds more than {MAX_CA_BYTES} bytes: no CA certificate")
    return content
