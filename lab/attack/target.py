"""The control plane that is attacked: a real process with a database of its own and one cluster.

Must not know what is done to it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from federation.certificates import make_certificates
from lab.callers import ALONE, Caller, bearer, unary_methods
from lab.control_planes import AgentStream
from lab.fake_agents import FakeAgent, capacity
from lab.issuers import AUDIENCE, running_issuer
from lab.servers import discard_databases, started

# Of which nobody but its own agent speaks.
CLUSTER = "innocent"
NODES = 4000
SECONDS = 30.0
HEARTBEAT_SECONDS = 2.0
RULES = """
apiVersion: fedsched.io/v1
kind: RoleRules
rules: [{from: oidc, claim: sub, value: ann, role: viewer}]
"""
ANY_PORTS = tuple(f"--{name}=127.0.0.1:0" for name in ("listen", "web-listen", "probe-listen"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where it is reached; can be sent to another process. ``ca`` is None where it is plain.

    JWTs of ``issuer`` are taken.
    """

    pid: int
    endpoint: str
    web: str
    probes: str
    token: str
    ca: bytes | None
    issuer: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The admin's."""
        return bearer(self.token)

    def channel(self) -> grpc.Channel:
        """A connection of its own."""
        if self.ca is None:
            return grpc.insecure_channel(self.endpoint, ALONE)
        return grpc.secure_channel(self.endpoint, grpc.ssl_channel_credentials(self.ca), ALONE)

    def aio_channel(self) -> grpc.aio.Channel:
        """A connection of its own."""
        if self.ca is None:
            return grpc.aio.insecure_channel(self.endpoint, ALONE)
        credentials = grpc.ssl_channel_credentials(self.ca)
        return grpc.aio.secure_channel(self.endpoint, credentials, ALONE)

    def enrolled(self, cluster: str) -> str:
        """The credential of the agent of a cluster that joins now."""
        with self.channel() as channel:
            made = self._ask(channel, "CreateJoinToken", self.metadata, cluster=cluster)
            joining = {"cluster": cluster, "token": made.token}
            deadline = time.monotonic() + SECONDS
            while True:
                try:
                    uid = f"uid-of-{cluster}"
                    issued = self._ask(channel, "EnrollCluster", (), cluster_uid=uid, **joining)
                    return str(issued.credential)
                except grpc.RpcError as error:
                    # Who attacks from the same address has used up what strangers there may do.
                    is_early = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                    if not is_early or time.monotonic() > deadline:
                        raise

    def token_of(self, role: str) -> str:
        """Create a token of a role, like ``ROLE_VIEWER``."""
        with self.channel() as channel:
            fields = {"name": "attacker", "role": role}
            return str(self._ask(channel, "CreateToken", self.metadata, **fields).secret)

    def _ask(self, channel: grpc.Channel, method: str, metadata: Any, **fields: Any) -> Any:
        path, request, answer = unary_methods()[method]
        call: Any = channel.unary_unary(path, request.SerializeToString, answer.FromString)
        return call(request(**fields), metadata=metadata, timeout=SECONDS)


@contextmanager
def attacked_plane(folder: Path, *, tls: bool, **variables: str) -> Iterator[Target]:
    """With the agent of an innocent cluster connected to it. Its data is gone at the end."""
    data = folder / "data"
    flags, ca = ["--insecure"], None
    if tls:
        files = make_certificates(folder / "certs", ["127.0.0.1", "localhost"])
        flags = [f"--tls-cert={files.cert}", f"--tls-key={files.key}", f"--tls-ca={files.ca}"]
        ca = files.ca.read_bytes()
    flags += [*ANY_PORTS, f"--data-dir={data}", "--log-level=warning"]
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    with (
        _discarded(data),
        running_issuer() as issuer,
        started(
            *flags,
            f"--oidc-issuer={issuer.url}",
            f"--oidc-audience={AUDIENCE}",
            f"--role-rules={rules}",
            **variables,
        ) as server,
    ):
        target = Target(
            pid=server.process.pid,
            endpoint=server.await_line(r"API +(\S+)").group(1),
            web=server.await_line(r"web +(http://[^/]+)").group(1),
            probes=server.await_line(r"probes +(http://[^/]+)").group(1),
            token=(data / "admin.token").read_text(encoding="ascii").strip(),
            ca=ca,
            issuer=issuer.url,
        )
        with _connected(target):
            yield target


@contextmanager
def _discarded(data: Path) -> Iterator[None]:
    try:
        yield
    finally:
        discard_databases(data)


@contextmanager
def _connected(target: Target) -> Iterator[None]:
    """The agent of the innocent cluster, on a thread of its own."""
    credential = target.enrolled(CLUSTER)
    reported, done = threading.Event(), threading.Event()

    async def live() -> None:
        async with target.aio_channel() as channel:
            agent = FakeAgent(AgentStream(Caller(channel, credential), CLUSTER))
            await agent.connect()
            await agent.report(capacity(4, node_count=NODES))
            reported.set()
            while not done.is_set():
                await agent.beat()
                await asyncio.sleep(HEARTBEAT_SECONDS)

    thread = threading.Thread(target=lambda: asyncio.run(live()), daemon=True)
    thread.start()
    try:
        assert reported.wait(SECONDS), "the innocent cluster's agent could not report"
        yield
    finally:
        done.set()
        thread.join(SECONDS)
