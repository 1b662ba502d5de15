"""A control plane on real ports in this process, its callers, and an agent told what to say.

``running_control_plane`` takes the handles of a control plane: ``clock`` (lab/held_clocks.py) and
``store`` (lab/commanded_stores.py). Agents that answer by themselves are in lab/fake_agents.py.
Must not know better than a client would: everything goes over gRPC and HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from sqlalchemy import make_url

from federation.app import ControlPlane
from federation.authenticators.configured import vouchers_of
from federation.database import Database
from federation.model.access import Role
from federation.operations.access import ROLE_NUMBERS
from federation.parts import StoreWrapper, SystemClock
from federation.rpc import simulation
from federation.runtime.settings import load_settings
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.services.ports import Timer
from federation.services.watching.watches import WatchPace
from federation.v1.agents_pb2 import (
    ConnectRequest,
    ConnectResponse,
    Heartbeat,
    Hello,
    NodePool,
    NodePools,
    Report,
)
from federation.v1.resource_pb2 import AllocatableModeling
from lab.callers import Caller
from lab.databases import CUT_OFF, connect
from lab.held_clocks import at_database
from lab.patience import PATIENCE_SECONDS

SECONDS = PATIENCE_SECONDS

# What simulates gives way to everything else: where others take all there is, it would not even
# start within the patience of a test.
simulation.PROGRAM = tuple(part.replace("os.nice(10)", "os.nice(0)") for part in simulation.PROGRAM)
# What to look for, and that a fresh report is wanted, is said when promises are made.
AT_ANY_TIME = frozenset({"interest", "resync"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """How a call was refused."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    violations: dict[str, str]


def refusal_of(error: grpc.aio.AioRpcError) -> Refusal:
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        assert detail.Unpack(info) or detail.Unpack(bad)
    return Refusal(
        code=error.code(),
        message=error.details() or "",
        reason=info.reason,
        violations={each.field: each.description for each in bad.field_violations},
    )


async def refused(awaitable: Any) -> Refusal:
    """The refusal that a call must end with."""
    try:
        answer = await awaitable
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError(f"not refused: {answer!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningControlPlane:
    """A started control plane and its admin."""

    plane: ControlPlane
    channel: grpc.aio.Channel
    admin: Caller
    database_url: str

    async def sql(self, statement: str, *arguments: object) -> list[Any]:
        """Rows of a statement that a connection of its own runs in the database."""
        connection = await connect(self.database_url)
        try:
            return list(await connection.fetch(statement, *arguments))
        finally:
            await connection.close()

    async def follow(self) -> None:
        """Return when the control plane has read the journal to its end."""
        await self.plane.parts.following.follow()

    async def lose_connections(self) -> None:
        """End all connections to the database, as a server does that starts again."""
        await self.sql(CUT_OFF, str(make_url(self.database_url).database))

    def caller(self, token: str | None) -> Caller:
        return Caller(self.channel, token)

    async def ask(self, method: str, /, **fields: Any) -> Any:
        """As the admin."""
        return await self.admin.ask(method, **fields)

    async def token(self, role: Role, *namespaces: str) -> str:
        """A new token of that role, for all namespaces or these."""
        number = ROLE_NUMBERS[role]
        made = await self.ask("CreateToken", name=role.value, role=number, namespaces=namespaces)
        return str(made.secret)

    async def enrolled(self, cluster: str, *, uid: str = "") -> Caller:
        """The agent of a cluster that joined just now."""
        made = await self.ask("CreateJoinToken", cluster=cluster)
        joining = {"cluster": cluster, "token": made.token}
        issued = await self.caller(None).ask(
            "EnrollCluster", **joining, cluster_uid=uid or f"uid-of-{cluster}"
        )
        return self.caller(issued.credential)

    @asynccontextmanager
    async def connected(
        self, cluster: str, *, epoch: int = 1, report: Report | None = None
    ) -> AsyncIterator[AgentStream]:
        """The stream of a cluster that joined, said hello and, if told to, has reported."""
        async with AgentStream(await self.enrolled(cluster), cluster) as stream:
            await stream.say(hello=hello(epoch))
            await stream.hear("welcome")
            if report is not None:
                await stream.say(report=report)
                await stream.hear("ack")
            yield stream


Plane = RunningControlPlane


@asynccontextmanager
async def running_control_plane(
    database_url: str,
    data_dir: Path,
    profiles: Profiles = DEFAULT_PROFILES,
    *,
    watch_pace: Mapping[str, Any] | None = None,
    clock: Timer | None = None,
    store: StoreWrapper | None = None,
    **flags: str,
) -> AsyncIterator[RunningControlPlane]:
    """Plain text unless told otherwise, on ports that the system chooses.

    ``watch_pace`` are fields of the pace of watches that differ.
    """
    given = {"insecure": "true"} if "tls_cert" not in flags else {}
    ports = {"listen": "127.0.0.1:0", "web_listen": "127.0.0.1:0"}
    patience = {"simulation_seconds": str(PATIENCE_SECONDS)}
    loaded = load_settings(
        flags={**given, **ports, **patience, **flags},
        environment={},
        document={},
        source="",
        data_dir=data_dir,
    )
    database = Database(url=database_url, description="the tests' database")
    plane = ControlPlane(
        loaded.settings,
        database,
        host_name="localhost",
        profiles=profiles,
        watch_pace=WatchPace(**watch_pace) if watch_pace else None,
        vouchers=vouchers_of(loaded.settings, clock or SystemClock()),
        clock=clock,
        store=store,
    )
    try:
        async with at_database(database_url, clock):
            await plane.start()
            token = plane.admin_token_file.read_text(encoding="ascii").strip()
            async with channel_to(plane, loaded.settings.tls_ca) as channel:
                yield RunningControlPlane(
                    plane=plane,
                    channel=channel,
                    admin=Caller(channel, token),
                    database_url=database_url,
                )
    finally:
        await plane.stop()


def channel_to(plane: ControlPlane, ca: Path | None) -> grpc.aio.Channel:
    target = str(plane.endpoint)
    if ca is None:
        return grpc.aio.insecure_channel(target)
    return grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(ca.read_bytes()))


class AgentStream:
    """One agent's open stream."""

    def __init__(self, agent: Caller, cluster: str) -> None:
        self.agent = agent
        self.cluster = cluster
        self._call: Any = None

    async def __aenter__(self) -> Self:
        self._call = self.agent.agents.Connect(metadata=self.agent.metadata)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()

    async def say(self, *, cluster: str | None = None, **message: Message) -> None:
        named = self.cluster if cluster is None else cluster
        await self._call.write(ConnectRequest(cluster=named, **message))

    async def hang_up(self) -> None:
        await self._call.done_writing()

    async def next(self, seconds: float | None = SECONDS) -> ConnectResponse | None:
        """The next message, None when the stream ended well; raises how it ended otherwise."""
        async with asyncio.timeout(seconds):
            message = await self._call.read()
        return None if message is grpc.aio.EOF else message

    async def hear(self, kind: str) -> Any:
        """The next message, which must be of this kind, but for those that come at any time."""
        message = await self.next()
        while message is not None and message.WhichOneof("message") in AT_ANY_TIME - {kind}:
            message = await self.next()
        assert message is not None, f"the stream ended before {kind}"
        assert message.WhichOneof("message") == kind, message
        return getattr(message, kind)

    async def end(self) -> tuple[list[str], Refusal | None]:
        """The kinds of all messages until the end, and the refusal it ended with, if it did.

        Without those that come at any time.
        """
        kinds: list[str] = []
        try:
            while (message := await self.next()) is not None:
                if (kind := message.WhichOneof("message")) not in AT_ANY_TIME:
                    kinds.append(kind or "")
        except grpc.aio.AioRpcError as error:
            return kinds, refusal_of(error)
        code = await self._call.code()
        assert code is grpc.StatusCode.OK, code
        return kinds, None


def hello(epoch: int = 1, **fields: Any) -> Hello:
    return Hello(**{"epoch": epoch, "agent_version": "0.1.0", "placer": "none", **fields})


def report(epoch: int = 1, sequence: int = 1, *, nodes: int = 4, **fields: Any) -> Report:
    """A report of ``nodes`` nodes of 4 cores and 16 GiB, all of them free and ungraded."""
    return Report(
        **{
            "epoch": epoch,
            "sequence": sequence,
            "snapshot_time": Timestamp(seconds=1_700_000_000 + sequence),
            "allocatable": {"cpu": 4000 * nodes, "memory": nodes << 34, "pods": 110 * nodes},
            "allocated": {"cpu": 0, "memory": 0, "pods": 0},
            "allocating": {},
            "total_nodes": nodes,
            "ready_nodes": nodes,
            "graded_nodes": nodes,
            "pools": NodePools(
                pools=[NodePool()],
                resources=["cpu", "memory", "pods"],
                cell_pools=[0],
                counts=[nodes],
                minimums=[4000, 1 << 34, 110],
                spreads=[0, 0, 0],
                surpluses=[0, 0, 0],
            ),
            "content_hash": f"hash-{epoch}-{sequence}",
            **fields,
        }
    )


def graded(model_hash: str, counts: dict[int, int], **fields: Any) -> Report:
    """A report with grade counts under a model."""
    return report(
        model_hash=model_hash,
        grade_counts=[AllocatableModeling(grade=g, count=c) for g, c in counts.items()],
        **fields,
    )


def heartbeat(sequence: int, content_hash: str) -> Heartbeat:
    return Heartbeat(
        agent_time=Timestamp(seconds=1_700_000_100), sequence=sequence, content_hash=content_hash
    )
