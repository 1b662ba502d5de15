"""Several control planes on one database, and a real agent that is connected to one of them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import grpc
import pytest

from federation.certificates import CertificateFiles, make_certificates
from federation.v1.estimates_pb2 import ESTIMATE_SOURCE_EXACT, ESTIMATE_SOURCE_POOLS
from federation.v1.resource_pb2 import Cluster, ReplicaRequirements
from lab.databases import connect, run
from lab.servers import ROOT, STOP_SECONDS, program
from tests.e2e.planes import SECONDS, Served

T = TypeVar("T")
POLL_SECONDS = 0.1
ASKED_SECONDS = 2.0
OFTEN = ("--heartbeat-seconds=1", "--report-seconds=1")
DUMP = ROOT / "examples" / "clusters" / "member1.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane(Served):
    """One of the control planes, and its admin."""

    def cluster(self) -> Cluster:
        found: Cluster = self.ask("GetCluster", name="member1").cluster
        return found

    def estimate(self) -> Any:
        """How many pods of one core fit in member1, asked as exactly as can be."""
        return self.caller(self.token, ASKED_SECONDS).ask(
            "EstimateReplicas",
            shapes=[ReplicaRequirements(resource_request={"cpu": "1"})],
            clusters=["member1"],
            highest_source=ESTIMATE_SOURCE_EXACT,
        )

    @property
    def estimates_exactly(self) -> bool:
        return bool(self.estimate().sources[0] == ESTIMATE_SOURCE_EXACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planes:
    """Control planes on one database, and what an agent needs to dial them."""

    all: list[Plane]
    database_url: str
    directory: Path
    trust: tuple[str, ...]

    @contextmanager
    def agent(self, *dialled: Plane, site: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """The agent of member1, which dials only these."""
        made = self.all[0].ask("CreateJoinToken", cluster="member1")
        endpoints = [flag for plane in dialled for flag in ("--endpoint", plane.endpoint)]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ESTIMATOR_")}
        command, folder, variables = program("estimator", site)
        agent = subprocess.Popen(
            [
                *(*command, "run", "--cluster", "member1", *endpoints),
                *(*self.trust, "--credential-file", str(self.directory / "credential.json")),
                *("--from", str(DUMP), "--join-token", made.token),
            ],
            cwd=folder,
            env={**kept, **variables},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            yield agent
        finally:
            agent.kill()
            agent.wait(STOP_SECONDS)

    def value(self, query: str) -> Any:
        """One value of the database."""

        async def read() -> Any:
            connection = await connect(self.database_url)
            try:
                return await connection.fetchval(query)
            finally:
                await connection.close()

        return run(read())

    def of_replica(self, query: str) -> Plane | None:
        """The control plane whose id the query gives."""
        endpoint = self.value(f"SELECT endpoint FROM replica WHERE id = ({query})")
        return next((plane for plane in self.all if plane.endpoint == endpoint), None)


@contextmanager
def serving(
    count: int,
    database_url: str,
    directory: Path,
    tls: CertificateFiles | None = None,
    sites: Mapping[int, Path] = MappingProxyType({}),
    flags: Sequence[str] = (),
) -> Iterator[Planes]:
    """``sites``: what other releases some of them are of, by their places."""
    data = directory / "data"
    transport: list[str] = []
    trust: tuple[str, ...] = ("--insecure",)
    if tls is not None:
        transport = [f"--tls-cert={tls.cert}", f"--tls-key={tls.key}", f"--tls-ca={tls.ca}"]
        trust = ("--ca-file", str(tls.ca))
    with ExitStack() as stack:
        planes = [
            stack.enter_context(
                Plane.on(
                    data,
                    *(*transport, *OFTEN, *flags),
                    ca=tls.ca if tls else None,
                    site=sites.get(place),
                    FEDERATION_DATABASE_URL=database_url,
                )
            )
            for place in range(count)
        ]
        yield Planes(all=planes, database_url=database_url, directory=directory, trust=trust)


def soon(look: Callable[[], T]) -> T:
    """What ``look`` finds as soon as that is true."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            found = look()
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise
        else:
            if found:
                return found
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)


def await_known(*planes: Plane) -> None:
    """Until each has the agent's report."""
    for plane in planes:
        soon(lambda plane=plane: plane.cluster().status.resource_summary.allocatable)


def is_ready(plane: Plane) -> bool:
    return [each.status for each in plane.cluster().status.conditions if each.type == "Ready"] == [
        "True"
    ]


@pytest.fixture
def planes(database_url: str, tmp_path: Path) -> Iterator[Planes]:
    with serving(2, database_url, tmp_path) as found:
        yield found


def test_an_agent_at_one_answers_questions_asked_at_another(planes: Planes) -> None:
    a, b = planes.all
    with planes.agent(a):
        await_known(a, b)
        soon(lambda: a.estimates_exactly and b.estimates_exactly)
        assert list(b.estimate().replicas) == list(a.estimate().replicas)


def test_control_planes_trust_each_other_by_the_ca(database_url: str, tmp_path: Path) -> None:
    tls = make_certificates(tmp_path / "tls", ["127.0.0.1"], now=datetime.now(UTC))
    with serving(2, database_url, tmp_path, tls) as planes:
        a, b = planes.all
        with planes.agent(a):
            await_known(a, b)
            soon(lambda: b.estimates_exactly)


def test_a_control_plane_that_is_killed_costs_its_agents_answers_and_nothing_else(
    database_url: str, tmp_path: Path
) -> None:
    with serving(3, database_url, tmp_path) as planes:
        a, b, c = planes.all
        with planes.agent(a):
            await_known(a, b, c)
            soon(lambda: b.estimates_exactly and c.estimates_exactly)
            assert is_ready(b)
            a.server.kill()
            for plane in (b, c):
                assert plane.estimate().sources[0] == ESTIMATE_SOURCE_POOLS
            soon(lambda: not is_ready(b) and not is_ready(c))


def test_the_agent_of_a_control_plane_that_is_killed_dials_another(planes: Planes) -> None:
    with planes.agent(*planes.all):
        await_known(*planes.all)
        serves = "SELECT replica FROM presence"
        holder = soon(lambda: planes.of_replica(serves))
        (other,) = (plane for plane in planes.all if plane is not holder)
        soon(lambda: other.estimates_exactly)
        holder.server.kill()
        soon(lambda: planes.of_replica(serves) is other)
        soon(lambda: other.estimates_exactly)
        assert is_ready(other)


def test_duties_move_when_their_holder_is_killed(planes: Planes) -> None:
    holds = "SELECT holder FROM duty WHERE name = 'prune requests'"
    holder = soon(lambda: planes.of_replica(holds))
    holder.server.kill()
    # Of what people wait for nobody has more than seconds to be replaced.
    urgent = "SELECT {} FROM duty WHERE name IN ('queue', 'failover')"
    assert planes.value(urgent.format("count(*)")) == 2
    assert planes.value(urgent.format("max(expires_at) <= now() + interval '3 seconds'"))
    planes.value(
        "INSERT INTO idempotency_key (caller, key, body_hash, answer, created_at) VALUES "
        "('admin', 'old', decode(repeat('00', 32), 'hex'), '', now() - interval '25 hours')"
    )
    (other,) = (plane for plane in planes.all if plane is not holder)
    soon(lambda: planes.of_replica(holds) is other)
    soon(lambda: planes.value("SELECT count(*) FROM idempotency_key") == 0)


def test_one_that_stops_says_so_and_leaves_nothing(planes: Planes) -> None:
    a, b = planes.all
    soon(lambda: planes.value("SELECT count(*) FROM replica") == 2)
    assert a.server.stop() == 0
    assert planes.value("SELECT count(*) FROM replica") == 1
    assert planes.value("SELECT count(*) FROM credential WHERE kind = 'replica'") == 1
    assert b.server.process.poll() is None
    assert "Traceback" not in a.server.output
