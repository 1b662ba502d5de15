"""SIGKILL in the midst of decisions: what was acknowledged is there, what was not is whole or gone.

Real processes, several callers, moments chosen by a seed.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.codec.strict import message_from_document
from federation.embedded_postgres.process import read_postmaster
from federation.v1 import clusters_pb2, resource_pb2, scheduling_pb2
from federation.v1.agents_pb2 import ConnectRequest
from federation.v1.agents_pb2_grpc import AgentsStub
from federation.v1.clusters_pb2_grpc import ClustersStub
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.control_planes import AT_ANY_TIME, hello, report
from lab.databases import connect, run
from lab.patience import PATIENCE_SECONDS
from lab.servers import Server, embedded_of, started

MEMBERS = ("member1", "member2", "member3")
CALLERS = 4
PAUSE_SECONDS = 0.02
# Nobody's agent is there: their reports must not grow stale while the test runs.
FLAGS = ("--insecure", "--listen=127.0.0.1:0", "--web-listen=127.0.0.1:0")
PATIENT = ("--heartbeat-seconds=600",)
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A running control plane and a way to call it as its admin."""

    server: Server
    endpoint: str
    token_file: Path
    channel: grpc.Channel

    @property
    def postgres_directory(self) -> Path:
        found = re.search(r"embedded PostgreSQL \S+ in (\S+)", self.server.output)
        assert found is not None
        return Path(found.group(1))

    def call(self, method: Any, request: Any) -> Any:
        token = self.token_file.read_text(encoding="ascii").strip()
        metadata = (("authorization", f"Bearer {token}"),)
        return method(request, metadata=metadata, timeout=PATIENCE_SECONDS)

    @property
    def scheduling(self) -> Any:
        return SchedulingStub(self.channel)


@contextmanager
def serving(data: Path, *flags: str, **environment: str) -> Iterator[Serving]:
    with started(*FLAGS, *PATIENT, f"--data-dir={data}", *flags, **environment) as server:
        endpoint = server.await_line(r"API +(\S+)").group(1)
        server.await_line("token")
        with grpc.insecure_channel(endpoint) as channel:
            yield Serving(
                server=server, endpoint=endpoint, token_file=data / "admin.token", channel=channel
            )


def fill(plane: Serving) -> None:
    """Three clusters that have reported room for everything."""
    clusters: Any = ClustersStub(plane.channel)
    agents: Any = AgentsStub(plane.channel)
    for name in MEMBERS:
        made = plane.call(
            clusters.CreateJoinToken, clusters_pb2.CreateJoinTokenRequest(cluster=name)
        )
        enroll = clusters_pb2.EnrollClusterRequest(
            cluster=name, token=made.token, cluster_uid=f"uid-{name}"
        )
        metadata = (("authorization", f"Bearer {clusters.EnrollCluster(enroll).credential}"),)
        said = [
            ConnectRequest(cluster=name, hello=hello()),
            ConnectRequest(cluster=name, report=report(nodes=100)),
        ]
        heard = agents.Connect(iter(said), metadata=metadata, timeout=PATIENCE_SECONDS)
        kinds = [each.WhichOneof("message") for each in heard]
        assert [kind for kind in kinds if kind not in AT_ANY_TIME] == ["welcome", "ack"]


def binding(name: str, replicas: int) -> resource_pb2.ResourceBinding:
    document = {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "replicas": replicas,
            "replicaRequirements": {"resourceRequest": {"cpu": "100m"}},
            "placement": {
                "replicaScheduling": {
                    "replicaSchedulingType": "Divided",
                    "weightPreference": {"dynamicWeight": "AvailableReplicas"},
                }
            },
        },
    }
    return message_from_document(document, resource_pb2.ResourceBinding)


@dataclass(slots=True, kw_only=True)
class Caller:
    """Schedules bindings of its own, new ones and known ones with other replicas, one at a time."""

    number: int
    acknowledged: list[scheduling_pb2.Decision] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    unanswered: dict[str, int] = field(default_factory=dict)
    refusals: list[grpc.StatusCode] = field(default_factory=list)

    def call_once(self, plane: Serving) -> bool:
        """Whether it was answered."""
        turn = len(self.acknowledged)
        name = f"caller{self.number}-{turn // 3}"
        replicas = 1 + turn % 7
        request = scheduling_pb2.ScheduleRequest(binding=binding(name, replicas))
        try:
            answer = plane.call(plane.scheduling.Schedule, request)
        except grpc.RpcError as error:
            self.refusals.append(error.code())
            self.unanswered[name] = replicas
            return False
        self.acknowledged.append(answer.decision)
        self.asked[name] = replicas
        self.unanswered.pop(name, None)
        return True


def check_answers(plane: Serving, callers: Sequence[Caller]) -> None:
    """Every acknowledged decision can be read, and every binding is as its newest one says."""
    for caller in callers:
        for told in caller.acknowledged:
            check_decision(plane, told)
        for name, replicas in {**caller.asked, **caller.unanswered}.items():
            check_binding(plane, caller, name, replicas)


def check_decision(plane: Serving, told: scheduling_pb2.Decision) -> None:
    request = scheduling_pb2.GetDecisionRequest(id=told.id)
    stored = plane.call(plane.scheduling.GetDecision, request).decision
    assert stored.clusters == told.clusters
    assert stored.outcome == told.outcome == OUTCOME_SCHEDULED
    assert [each.name for each in stored.trace.clusters] == list(MEMBERS)


def stored_binding(plane: Serving, name: str) -> Any:
    request = scheduling_pb2.GetBindingRequest(namespace="shop", name=name)
    try:
        return plane.call(plane.scheduling.GetBinding, request)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return None
        raise


def check_binding(plane: Serving, caller: Caller, name: str, replicas: int) -> None:
    """It is as its newest decision says, which is the last acknowledged or the unanswered one."""
    found = stored_binding(plane, name)
    if found is None:
        assert name not in caller.asked
        return
    spec, decision = found.binding.spec, found.decision
    assert spec.replicas in {caller.asked.get(name, replicas), replicas}
    assert {each.name: each.replicas for each in spec.clusters} == {
        each.name: each.replicas for each in decision.clusters
    }
    assert sum(each.replicas for each in spec.clusters) == spec.replicas
    assert decision.binding_generation == found.binding.metadata.generation
    mine = [each.id for each in caller.acknowledged if each.name == name]
    assert name in caller.unanswered or decision.id == mine[-1]


def check_rows(database_url: str, callers: Sequence[Caller]) -> None:
    """No decision is half there, and none that nobody asked for."""

    async def read() -> tuple[int, int, int]:
        connection = await connect(database_url)
        try:
            decisions = await connection.fetchval("SELECT count(*) FROM decision")
            orphans = await connection.fetchval(
                "SELECT count(*) FROM decision d LEFT JOIN binding b ON b.id = d.binding_id "
                "AND b.namespace = d.namespace AND b.name = d.name WHERE b.id IS NULL"
            )
            undecided = await connection.fetchval(
                "SELECT count(*) FROM binding b LEFT JOIN decision d ON d.id = b.decision_id "
                "AND d.binding_id = b.id AND d.binding_generation = b.generation "
                "AND NOT EXISTS (SELECT FROM decision l WHERE l.binding_id = b.id "
                "AND l.created_at > d.created_at) WHERE d.id IS NULL"
            )
            return decisions, orphans, undecided
        finally:
            await connection.close()

    decisions, orphans, undecided = run(read())
    acknowledged = sum(len(caller.acknowledged) for caller in callers)
    refused = sum(len(caller.refusals) for caller in callers)
    assert acknowledged <= decisions <= acknowledged + refused
    assert (orphans, undecided) == (0, 0)


@contextmanager
def calling(plane: Serving, callers: Sequence[Caller], *, persistent: bool) -> Iterator[None]:
    """All callers call at once, until they are cut off or, when persistent, until the end."""
    stop = threading.Event()

    def call(caller: Caller) -> None:
        while not stop.is_set():
            if caller.call_once(plane):
                continue
            if not persistent:
                return
            stop.wait(PAUSE_SECONDS)

    with ThreadPoolExecutor(max_workers=len(callers)) as threads:
        running = [threads.submit(call, caller) for caller in callers]
        try:
            yield
        finally:
            if persistent:
                stop.set()
            ended = [each.exception(timeout=2 * PATIENCE_SECONDS) for each in running]
        assert ended == [None] * len(callers)


def await_answers(callers: Sequence[Caller], more: int) -> None:
    """Until every caller has been answered so many times more."""
    wanted = [len(caller.acknowledged) + more for caller in callers]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(len(caller.acknowledged) < n for caller, n in zip(callers, wanted, strict=True)):
        assert time.monotonic() < deadline, [caller.refusals[-3:] for caller in callers]
        threading.Event().wait(0.001)


def check_refusals(callers: Sequence[Caller]) -> None:
    assert {code for caller in callers for code in caller.refusals} <= {UNAVAILABLE}


def test_a_control_plane_may_be_killed_at_any_moment(
    fresh_database_url: str, tmp_path: Path
) -> None:
    moments = random.Random(17)
    callers = [Caller(number=number) for number in range(CALLERS)]
    rounds = 4
    for played in range(rounds):
        with serving(tmp_path, FEDERATION_DATABASE_URL=fresh_database_url) as plane:
            if played == 0:
                fill(plane)
            else:
                check_answers(plane, callers)
                check_rows(fresh_database_url, callers)
            with calling(plane, callers, persistent=False):
                await_answers(callers, moments.randint(1, 4))
                threading.Event().wait(moments.uniform(0.0, 0.02))
                plane.server.kill()
    assert all(len(caller.refusals) == rounds for caller in callers)
    check_refusals(callers)
    with serving(tmp_path, FEDERATION_DATABASE_URL=fresh_database_url) as plane:
        check_answers(plane, callers)
        check_rows(fresh_database_url, callers)
        with calling(plane, callers, persistent=True):
            await_answers(callers, 1)


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose embedded database is gone at the end."""
    directory = tmp_path / "state"
    yield directory
    embedded_of(directory).discard()


def check_rows_of(data: Path, callers: Sequence[Caller]) -> None:
    """The same of an embedded database that nobody uses."""
    with embedded_of(data) as postgres:
        check_rows(postgres.url, callers)


def kill_postgres(plane: Serving) -> None:
    postmaster = read_postmaster(plane.postgres_directory)
    assert postmaster is not None
    os.kill(postmaster.pid, signal.SIGKILL)


def test_postgres_may_be_killed_under_it_and_both_at_once(data: Path) -> None:
    moments = random.Random(18)
    callers = [Caller(number=number) for number in range(CALLERS)]
    with serving(data) as plane:
        fill(plane)
        with calling(plane, callers, persistent=True):
            for _ in range(2):
                await_answers(callers, moments.randint(1, 4))
                threading.Event().wait(moments.uniform(0.0, 0.02))
                kill_postgres(plane)
                check_fedctl(plane)
                await_answers(callers, 2)
        assert any(caller.refusals for caller in callers)
        check_answers(plane, callers)
        assert "Traceback" not in plane.server.output
        with calling(plane, callers, persistent=False):
            await_answers(callers, moments.randint(1, 4))
            kill_postgres(plane)
            plane.server.kill()
    check_refusals(callers)
    with serving(data) as plane:
        check_answers(plane, callers)
        assert plane.server.stop() == 0
    check_rows_of(data, callers)


def check_fedctl(plane: Serving) -> None:
    """A person is answered from memory, or told what is the matter, in the meantime."""
    flags = ("--insecure", "--endpoint", plane.endpoint, "--token-file", str(plane.token_file))
    listed = CliRunner().invoke(fedctl, [*flags, "get", "clusters"])
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in MEMBERS)
    asked = CliRunner().invoke(fedctl, [*flags, "get", "bindings"])
    assert asked.exit_code in (0, 1)
    assert asked.exit_code == 0 or asked.stderr.startswith("error: ")
    assert "Traceback" not in asked.stderr
