"""``federation serve`` as a process: first start, credentials, crashes of either side, the end."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.embedded_postgres.process import read_postmaster
from federation.v1.clusters_pb2 import (
    CreateJoinTokenRequest,
    EnrollClusterRequest,
    ListClustersRequest,
)
from federation.v1.clusters_pb2_grpc import ClustersStub
from federation.v1.resource_pb2 import (
    ObjectMeta,
    ObjectReference,
    Placement,
    ResourceBinding,
    ResourceBindingSpec,
)
from federation.v1.scheduling_pb2 import GetBindingRequest, ScheduleRequest
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.patience import PATIENCE_SECONDS
from lab.servers import Server, await_status, embedded_of, federation, started

SECONDS = PATIENCE_SECONDS
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A data directory, and the servers that run on it one after the other."""

    data: Path

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[Running]:
        ports = ("--listen", "127.0.0.1:0", "--web-listen", "127.0.0.1:0")
        with started("--insecure", "--data-dir", str(self.data), *ports, *arguments) as server:
            endpoint = server.await_line(r"API +(\S+)").group(1)
            web = server.await_line(r"web +(http://[^/]+)").group(1)
            server.await_line(r"token")
            with grpc.insecure_channel(endpoint) as channel:
                yield Running(
                    server=server, web=web, channel=channel, token_file=self.data / "admin.token"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that serves, and its admin."""

    server: Server
    web: str
    channel: grpc.Channel
    token_file: Path

    def call(self, method: Any, request: Any, *, token: str | None = None) -> Any:
        given = self.token_file.read_text(encoding="ascii").strip() if token is None else token
        metadata = (("authorization", f"Bearer {given}"),) if given else ()
        return method(request, metadata=metadata, timeout=SECONDS)

    def enroll(self, cluster: str) -> None:
        stub: Any = ClustersStub(self.channel)
        made = self.call(stub.CreateJoinToken, CreateJoinTokenRequest(cluster=cluster))
        request = EnrollClusterRequest(cluster=cluster, token=made.token, cluster_uid="u")
        self.call(stub.EnrollCluster, request, token="")

    def clusters(self, *, token: str | None = None) -> list[str]:
        stub: Any = ClustersStub(self.channel)
        answer = self.call(stub.ListClusters, ListClustersRequest(), token=token)
        return [cluster.metadata.name for cluster in answer.clusters]

    def schedule(self, name: str) -> Any:
        binding = ResourceBinding(
            metadata=ObjectMeta(namespace="shop", name=name),
            spec=ResourceBindingSpec(
                resource=ObjectReference(api_version="apps/v1", kind="Deployment", name=name),
                replicas=2,
                placement=Placement(),
            ),
        )
        stub: Any = SchedulingStub(self.channel)
        return self.call(stub.Schedule, ScheduleRequest(binding=binding))

    def binding(self, name: str) -> Any:
        stub: Any = SchedulingStub(self.channel)
        return self.call(stub.GetBinding, GetBindingRequest(namespace="shop", name=name))

    def binding_once_available(self, name: str) -> Any:
        """Ask until the database answers; until then nothing but UNAVAILABLE may be heard."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return self.binding(name)
            except grpc.RpcError as error:
                code: Any = getattr(error, "code", None)
                unavailable = code() is grpc.StatusCode.UNAVAILABLE
                if not unavailable or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    data = tmp_path / "state"
    yield Installation(data=data)
    embedded_of(data).discard()


def code_of(error: pytest.ExceptionInfo[grpc.RpcError]) -> grpc.StatusCode:
    return error.value.code()


def test_a_first_start_makes_everything_and_tells_no_secret(installation: Installation) -> None:
    with installation.serving() as running:
        token = running.token_file.read_text(encoding="ascii").strip()
        assert stat.S_IMODE(running.token_file.stat().st_mode) == 0o600
        assert str(running.token_file) in running.server.output
        assert "embedded PostgreSQL" in running.server.output
        await_status(f"{running.web}/healthz", 200)
        await_status(f"{running.web}/readyz", 200)
        await_status(f"{running.web}/ca.pem", 404)
        assert running.clusters() == []
        for wrong in ("", "wrong", token + "x", token.partition(".")[0] + ".wrong"):
            with pytest.raises(grpc.RpcError) as caught:
                running.clusters(token=wrong)
            assert code_of(caught) is grpc.StatusCode.UNAUTHENTICATED
        assert running.server.stop() == 0
        assert token not in running.server.output
        assert token.partition(".")[2] not in running.server.output


def test_a_killed_server_comes_back_with_everything_that_was_answered(
    installation: Installation,
) -> None:
    with installation.serving() as running:
        running.enroll("member1")
        before = running.schedule("cart")
        token = running.token_file.read_text(encoding="ascii")
        running.server.kill()
    with installation.serving() as running:
        assert running.token_file.read_text(encoding="ascii") == token
        assert running.clusters() == ["member1"]
        found = running.binding("cart")
        assert found.binding == before.binding
        assert found.decision.id == before.decision.id


def test_a_database_that_dies_is_started_again_and_the_server_lives_on(
    installation: Installation,
) -> None:
    with installation.serving() as running:
        running.enroll("member1")
        before = running.schedule("cart")
        os.kill(postmaster_pid(running), signal.SIGKILL)
        found = running.binding_once_available("cart")
        assert found.binding == before.binding
        await_status(f"{running.web}/readyz", 200)
        assert running.clusters() == ["member1"]
        running.schedule("basket")
        end_in_order(running)


def postmaster_pid(running: Running) -> int:
    data = running.server.output.partition("embedded PostgreSQL ")[2].splitlines()[0]
    postmaster = read_postmaster(Path(data.partition(" in ")[2]))
    assert postmaster is not None
    return postmaster.pid


def end_in_order(running: Running) -> None:
    """Nothing stays behind."""
    pid = postmaster_pid(running)
    assert running.server.stop() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_data_directory_and_a_port_serve_one_server(
    installation: Installation, tmp_path: Path, fresh_database_url: str
) -> None:
    with installation.serving() as running:
        endpoint = running.server.output.partition("API")[2].split()[0]
        second = federation("serve", "--insecure", "--data-dir", str(installation.data))
        assert second.returncode == 1
        assert f"is used by process {running.server.process.pid}" in second.stderr
        third = federation(
            *("serve", "--insecure", "--data-dir", str(tmp_path / "other")),
            *("--listen", endpoint, "--web-listen", "127.0.0.1:0"),
            FEDERATION_DATABASE_URL=fresh_database_url,
        )
        assert third.returncode == 1
        assert f"cannot listen on {endpoint}" in third.stderr
        assert "Traceback" not in second.stderr + third.stderr
        running.clusters()
        end_in_order(running)
        assert "Traceback" not in running.server.output
