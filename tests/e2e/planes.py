"""A control plane of its own process that must come through everything unharmed.

Must not know what is done to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.v1 import clusters_pb2
from federation.v1.agents_pb2 import ConnectRequest
from federation.v1.agents_pb2_grpc import AgentsStub
from federation.v1.clusters_pb2_grpc import ClustersStub
from lab.control_planes import AT_ANY_TIME, Refusal, hello, refusal_of, report
from lab.databases import TABLES, Databases, connect, run
from lab.patience import PATIENCE_SECONDS
from lab.servers import Server, started

SECONDS = PATIENCE_SECONDS
# Control planes write into these with nobody calling; and who was refused is recorded.
BEATING = frozenset({"public.duty", "public.presence", "public.replica"})
AUDIT = frozenset({"public.audit", "public.audit_head"})
# When a credential was used is written some seconds later.
ROWS = "SELECT (to_jsonb(one) - 'last_used_at' - 'last_used_from')::text FROM {} one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """A control plane of its own process, its admin, the agent of member1, and its database."""

    server: Server
    endpoint: str
    channel: grpc.Channel
    token_file: Path
    agent_credential: str
    database_url: str

    @property
    def token(self) -> str:
        return self.token_file.read_text(encoding="ascii").strip()

    def call(self, method: Any, request: Any, *, token: str | None = None) -> Any:
        """``method`` with the admin's token, another one, or (empty) none."""
        given = self.token if token is None else token
        metadata = (("authorization", f"Bearer {given}"),) if given else ()
        return method(request, metadata=metadata, timeout=SECONDS)

    def refused(self, method: Any, request: Any, *, token: str | None = None) -> Refusal:
        try:
            answer = self.call(method, request, token=token)
        except grpc.RpcError as error:
            return refusal_of(error)
        raise AssertionError(f"not refused: {answer!r}")

    def rows(self) -> Mapping[str, list[str]]:
        """Everything in the database, by table, but for what changes by itself."""

        async def read() -> dict[str, list[str]]:
            connection = await connect(self.database_url)
            try:
                found = [record[0] for record in await connection.fetch(TABLES)]
                tables = [table for table in found if table not in BEATING | AUDIT]
                return {
                    table: sorted(row[0] for row in await connection.fetch(ROWS.format(table)))
                    for table in tables
                }
            finally:
                await connection.close()

        return run(read())

    @contextmanager
    def unharmed(self) -> Iterator[None]:
        """What is done within must write nothing and leave a server that answers."""
        before = self.rows()
        yield
        after = self.rows()
        changed = [
            (table, row)
            for table in sorted({*before, *after})
            for row in set(before.get(table, ())) ^ set(after.get(table, ()))
        ]
        assert not changed, changed
        stub: Any = ClustersStub(self.channel)
        listed = self.call(stub.ListClusters, clusters_pb2.ListClustersRequest())
        assert [each.metadata.name for each in listed.clusters] == ["member1"]
        assert self.server.process.poll() is None


@pytest.fixture(scope="module")
def plane(
    databases: Databases,
    template_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Plane]:
    """For all tests of a file, on a database of its own."""
    name = Path(request.module.__file__).stem
    url = databases.create(name, template=template_url)
    with serving_plane(url, tmp_path_factory.mktemp(name)) as served:
        yield served
    databases.drop(url)


@contextmanager
def serving_plane(database_url: str, data: Path, *flags: str) -> Iterator[Plane]:
    """A control plane with one cluster; at its end nothing unexpected may be in its log."""
    ports = ("--listen", "127.0.0.1:0", "--web-listen", "127.0.0.1:0")
    with started(
        *("--insecure", "--data-dir", str(data), *ports, *flags),
        FEDERATION_DATABASE_URL=database_url,
    ) as server:
        endpoint = server.await_line(r"API +(\S+)").group(1)
        with grpc.insecure_channel(endpoint) as channel:
            token = data / "admin.token"
            yield Plane(
                server=server,
                endpoint=endpoint,
                channel=channel,
                token_file=token,
                agent_credential=join(channel, token.read_text(encoding="ascii").strip()),
                database_url=database_url,
            )
        assert server.stop() == 0, server.output
        assert "Traceback" not in server.output, server.output
        assert "unexpected error" not in server.output, server.output


def join(channel: grpc.Channel, token: str) -> str:
    """The credential of member1's agent, which has joined and reported."""
    stub: Any = ClustersStub(channel)
    agents: Any = AgentsStub(channel)
    made = stub.CreateJoinToken(
        clusters_pb2.CreateJoinTokenRequest(cluster="member1"),
        metadata=(("authorization", f"Bearer {token}"),),
    )
    request = clusters_pb2.EnrollClusterRequest(
        cluster="member1", token=made.token, cluster_uid="uid-1"
    )
    credential: str = stub.EnrollCluster(request).credential
    said = [said_by_member1(hello=hello()), said_by_member1(report=report())]
    metadata = (("authorization", f"Bearer {credential}"),)
    heard = agents.Connect(iter(said), metadata=metadata, timeout=SECONDS)
    kinds = [each.WhichOneof("message") for each in heard]
    assert [kind for kind in kinds if kind not in AT_ANY_TIME] == ["welcome", "ack"]
    return credential


def said_by_member1(**message: Any) -> ConnectRequest:
    return ConnectRequest(cluster="member1", **message)
