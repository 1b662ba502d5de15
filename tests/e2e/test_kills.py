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
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.embedded_postgres.process import read_postmaster
from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, Decision
from lab.databases import connect, run
from lab.patience import PATIENCE_SECONDS
from lab.servers import embedded_of
from tests.api.calls import BY_ROOM
from tests.api.calls import binding as workload
from tests.e2e.planes import Served

MEMBERS = ("member1", "member2", "member3")
CALLERS = 4
PAUSE_SECONDS = 0.02
# Nobody's agent is there: their reports must not grow stale while the test runs.
PATIENT = "--heartbeat-seconds=600"
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving(Served):
    """A control plane whose database may be embedded."""

    @property
    def postgres_directory(self) -> Path:
        found = re.search(r"embedded PostgreSQL \S+ in (\S+)", self.server.output)
        assert found is not None
        return Path(found.group(1))


def fill(plane: Serving) -> None:
    """Three clusters that have reported room for everything."""
    for name in MEMBERS:
        plane.report_once(name, nodes=100)


def binding(name: str, replicas: int) -> ResourceBinding:
    placement = {"replica_scheduling": BY_ROOM}
    return workload(name, replicas=replicas, request={"cpu": "100m"}, placement=placement)


@dataclass(slots=True, kw_only=True)
class Caller:
    """Schedules bindings of its own, new ones and known ones with other replicas, one at a time."""

    number: int
    acknowledged: list[Decision] = field(default_factory=list)
    asked: dict[str, int] = field(default_factory=dict)
    unanswered: dict[str, int] = field(default_factory=dict)
    refusals: list[grpc.StatusCode] = field(default_factory=list)

    def call_once(self, plane: Serving) -> bool:
        """Whether it was answered."""
        turn = len(self.acknowledged)
        name = f"caller{self.number}-{turn // 3}"
        replicas = 1 + turn % 7
        try:
            answer = plane.ask("Schedule", binding=binding(name, replicas))
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


def check_decision(plane: Serving, told: Decision) -> None:
    stored = plane.ask("GetDecision", id=told.id).decision
    assert stored.clusters == told.clusters
    assert stored.outcome == told.outcome == OUTCOME_SCHEDULED
    assert [each.name for each in stored.trace.clusters] == list(MEMBERS)


def stored_binding(plane: Serving, name: str) -> Any:
    try:
        return plane.ask("GetBinding", namespace="shop", name=name)
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
        with Serving.on(tmp_path, PATIENT, FEDERATION_DATABASE_URL=fresh_database_url) as plane:
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
    with Serving.on(tmp_path, PATIENT, FEDERATION_DATABASE_URL=fresh_database_url) as plane:
        check_answers(plane, callers)
        check_rows(fresh_database_url, callers)
        with calling(plane, callers, persistent=True):
            await_answers(callers, 1)


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
    with Serving.on(data, PATIENT) as plane:
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
    with Serving.on(data, PATIENT) as plane:
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
