"""Whether an agent can do its work where it runs, and what to do where it cannot.

Must not change anything, nor open a stream: that would take a running agent's place.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import stat
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

import grpc

from estimator.agent.channel import open_channel
from estimator.credential import Credential, CredentialStore, load_credential
from estimator.joining import Joining
from estimator.settings import RunSettings
from federation.model.errors import FederationError
from federation.model.printable import printable
from federation.runtime.addresses import Address
from federation.runtime.findings import Finding, bad, good, note

if TYPE_CHECKING:
    from estimator.kube.client import KubeClient

SECONDS: Final = 5.0
EXPIRES_SOON_SECONDS: Final = 30 * 86_400.0
# Credentials are renewed daily.
RENEWED_SECONDS: Final = 7 * 86_400.0
CLOCK_SECONDS: Final = 5.0
LISTED: Final = ("/api/v1/nodes", "/api/v1/pods", "/api/v1/resourcequotas")
HEALTH: Final = "/grpc.health.v1.Health/Check"
ASK_WHO: Final = "/federation.v1.Access/WhoAmI"


async def examine(
    settings: RunSettings, client: KubeClient | None, store: CredentialStore, joining: Joining
) -> list[Finding]:
    """The cluster first, where an API server is asked, then the way to the control planes."""
    findings = []
    if client is not None:
        findings += [finding async for finding in cluster_findings(client)]
    if not settings.endpoints:
        return findings
    credential = None
    try:
        credential = await load_credential(
            store, cluster=settings.cluster, ca_sha256=settings.ca_sha256
        )
        findings.append(_credential(settings, store, credential, time.time()))
        ca_pem = await joining.trusted(credential.ca if credential else "")
    except FederationError as error:
        remedy = "join with a token (`fedctl join-token create` prints how)"
        findings.append(bad("credential", printable(error.message), remedy))
        return findings
    if settings.credential_secret is None:
        findings += _readable(settings)
    for endpoint in settings.endpoints:
        findings += [finding async for finding in endpoint_findings(endpoint, ca_pem, credential)]
    return findings


async def cluster_findings(client: KubeClient) -> AsyncIterator[Finding]:
    """Whether the API server lets the agent read what it counts."""
    remedy = "apply the role of deploy/agent, or name another --kubeconfig"
    try:
        uid, version = await client.cluster_facts()
    except FederationError as error:
        yield bad("cluster", printable(error.message), remedy)
        return
    yield good("cluster", f"Kubernetes {printable(version)} answers".replace("  ", " "))
    if not uid:
        says = "its uid, that of kube-system, cannot be read: the agent cannot join with a token"
        yield note("identity", says, remedy)
    for path in LISTED:
        name = path.rpartition("/")[2]
        try:
            await client.request("GET", path, query={"limit": 1})
        except FederationError as error:
            yield bad(name, f"cannot be listed: {printable(error.message)}", remedy)
        else:
            yield good(name, "can be listed")
    if client.server_date:
        yield _clock("the API server's", client.server_date)


def _clock(whose: str, date: str) -> Finding:
    try:
        ahead = time.time() - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return note("clock", f"{whose} is not told", "")
    if abs(ahead) > CLOCK_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        says = f"this machine's clock is {abs(ahead):.0f} s {way} {whose}"
        return bad("clock", says, "let both follow NTP")
    return good("clock", f"{whose} and this machine's agree")


def _credential(
    settings: RunSettings, store: CredentialStore, credential: Credential | None, now: float
) -> Finding:
    remedy = f"join again: `fedctl join-token create --cluster {settings.cluster}`"
    if credential is None:
        says = f"{store} does not exist: the agent has not joined"
        if settings.join_token or settings.join_token_file:
            return note("credential", says, "it joins with its token when it starts")
        return bad("credential", says, remedy)
    remaining_seconds = credential.expires_at - now
    ends = datetime.fromtimestamp(credential.expires_at, UTC)
    says = f"{store} is good until {ends:%Y-%m-%d}"
    if remaining_seconds <= 0:
        return bad("credential", says, remedy)
    if remaining_seconds < RENEWED_SECONDS:
        return note("credential", says, "it is renewed while the agent is connected: is it?")
    return good("credential", says)


def _readable(settings: RunSettings) -> Iterator[Finding]:
    path = settings.credential_file
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if stat.S_IMODE(mode) & 0o077:
        yield bad("secrets", f"{path} can be read by others", f"chmod 600 {path}")


async def endpoint_findings(
    endpoint: Address, ca_pem: bytes | None, credential: Credential | None
) -> AsyncIterator[Finding]:
    """One control plane: its certificate, whether it serves, and whether it knows the agent."""
    subject = str(endpoint)
    if ca_pem is not None:
        certificate = await asyncio.to_thread(_certificate, endpoint, ca_pem)
        yield certificate
        if certificate.severity == "bad":
            return
    async with open_channel(endpoint, ca_pem) as channel:
        code = await _asked(channel, HEALTH, ())
        if code is not grpc.StatusCode.OK:
            remedy = "is it started, and does a firewall let this machine through?"
            yield bad(subject, f"does not serve ({code.name})", remedy)
            return
        yield good(subject, "serves")
        if credential is None:
            return
        bearer = (("authorization", f"Bearer {credential.credential}"),)
        # An agent may not ask this: that it is refused by its role says that it is known.
        code = await _asked(channel, ASK_WHO, bearer)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        remedy = "it was revoked, or the database restored: join again with another token"
        yield bad(subject, "does not know the credential", remedy)
    elif code in {grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED}:
        yield good(subject, "knows the credential")
    else:
        yield note(subject, f"did not say whether it knows the credential ({code.name})", "")


async def _asked(
    channel: grpc.aio.Channel, method: str, metadata: tuple[tuple[str, str], ...]
) -> grpc.StatusCode:
    call: Any = channel.unary_unary(method)
    code: grpc.StatusCode = await call(b"", timeout=SECONDS, metadata=metadata).code()
    return code


def _certificate(endpoint: Address, ca_pem: bytes) -> Finding:
    """That of the control plane, by the authority that this agent trusts. Blocks."""
    subject = str(endpoint)
    try:
        context = ssl.create_default_context(cadata=ca_pem.decode("ascii"))
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((endpoint.host, endpoint.port), timeout=SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=endpoint.host) as connection,
        ):
            peer: Any = connection.getpeercert()
    except ssl.SSLCertVerificationError as error:
        remedy = "is it another fleet's, for another name, or has it ended?"
        return bad(subject, f"its certificate is not trusted: {error.verify_message}", remedy)
    except (OSError, ValueError) as error:
        remedy = "is it started, and does a firewall let this machine through?"
        return bad(subject, f"cannot be reached: {printable(str(error))}", remedy)
    remaining_seconds = ssl.cert_time_to_seconds(peer["notAfter"]) - time.time()
    end = datetime.fromtimestamp(time.time() + remaining_seconds, UTC)
    says = f"its certificate ends on {end:%Y-%m-%d}"
    if remaining_seconds < EXPIRES_SOON_SECONDS:
        return note(subject, says, "issue another of the same authority")
    return good(subject, says)
