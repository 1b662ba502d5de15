"""Control planes of processes of their own, and one that must come through everything unharmed.

Must not know what is done to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import grpc

from federation.v1.agents_pb2 import ConnectRequest
from lab.callers import BlockingCaller
from lab.control_planes import AT_ANY_TIME, Refusal, hello, refusal_of, report
from lab.databases import TABLES, connect, run
from lab.patience import PATIENCE_SECONDS
from lab.servers import Server, started

SECONDS = PATIENCE_SECONDS
PORTS = ("--listen=127.0.0.1:0", "--web-listen=127.0.0.1:0")
# Control planes write into these with nobody calling; and who was refused is recorded.
BEATING = frozenset({"fedsched.duty", "fedsched.presence", "fedsched.replica"})
# And its partitions, head and batches.
AUDIT = "fedsched.audit"
# When a credential was used is written some seconds later.
ROWS = "SELECT (to_jsonb(one) - 'last_used_at' - 'last_used_from')::text FROM {} one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A control plane of its own process, and its admin."""

    server: Server
    endpoint: str
    channel: grpc.Channel
    token_file: Path

    @classmethod
    @contextmanager
    def on(
        cls,
        data: Path,
        *flags: str,
        ca: Path | None = None,
        site: Path | None = None,
        **environment: str,
    ) -> Iterator[Self]:
        """One on a data directory; in plain text where no ``ca`` of its certificate is given."""
        transport = () if ca else ("--insecure",)
        with started(
            *(*transport, f"--data-dir={data}", *PORTS, *flags), site=site, **environment
        ) as server:
            endpoint = server.await_line(r"API +(\S+)").group(1)
            server.await_line("token")
            with channel_to(endpoint, ca) as channel:
                yield cls(
                    server=server,
                    endpoint=endpoint,
                    channel=channel,
                    token_file=data / "admin.token",
                )

    @property
    def web(self) -> str:
        """Host and port of its pages."""
        found = re.search(r"web +http://([^/\s]+)", self.server.output)
        assert found is not None
        return found.group(1)

    @property
    def token(self) -> str:
        return self.token_file.read_text(encoding="ascii").strip()

    def caller(self, token: str | None, seconds: float = SECONDS) -> BlockingCaller:
        return BlockingCaller(self.channel, token, seconds)

    def ask(self, method: str, /, **fields: Any) -> Any:
        """Call a method by its name alone, as the admin."""
        return self.caller(self.token).ask(method, **fields)

    def enroll(self, cluster: str) -> str:
        """The credential of the agent of a cluster that joins now."""
        return self.caller(self.token).enroll(cluster)

    def report_once(self, cluster: str, **fields: Any) -> str:
        """The credential of a cluster's agent, which has joined and reported."""
        credential = self.enroll(cluster)
        said = [
            ConnectRequest(cluster=cluster, hello=hello()),
            ConnectRequest(cluster=cluster, report=report(**fields)),
        ]
        heard = self.caller(credential).connect(iter(said))
        kinds = [each.WhichOneof("message") for each in heard]
        assert [kind for kind in kinds if kind not in AT_ANY_TIME] == ["welcome", "ack"]
        return credential


def channel_to(endpoint: str, ca: Path | None) -> grpc.Channel:
    if ca is None:
        return grpc.insecure_channel(endpoint)
    return grpc.secure_channel(endpoint, grpc.ssl_channel_credentials(ca.read_bytes()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane(Served):
    """A control plane with the agent of member1, and its database."""

    agent_credential: str = ""
    database_url: str = ""

    def refused(self, token: str, method: str, **fields: Any) -> Refusal:
        try:
            answer = self.caller(token).ask(method, **fields)
        except grpc.RpcError as error:
            return refusal_of(error)
        raise AssertionError(f"not refused: {answer!r}")

    def rows(self) -> Mapping[str, list[str]]:
        """Everything in the database, by table, but for what changes by itself."""

        async def read() -> dict[str, list[str]]:
            connection = await connect(self.database_url)
            try:
                found = [record[0] for record in await connection.fetch(TABLES)]
                tables = [
                    table for table in found if table not in BEATING and not table.startswith(AUDIT)
                ]
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
        listed = self.ask("ListClusters")
        assert [each.metadata.name for each in listed.clusters] == ["member1"]
        assert self.server.process.poll() is None


@contextmanager
def serving_plane(database_url: str, data: Path, *flags: str) -> Iterator[Plane]:
    """A control plane with one cluster; at its end nothing unexpected may be in its log."""
    with Plane.on(data, *flags, FEDERATION_DATABASE_URL=database_url) as plane:
        credential = plane.report_once("member1")
        yield replace(plane, agent_credential=credential, database_url=database_url)
        assert plane.server.stop() == 0, plane.server.output
        assert "Traceback" not in plane.server.output, plane.server.output
        assert "unexpected error" not in plane.server.output, plane.server.output
