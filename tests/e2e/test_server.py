"""``federation serve`` as a process: first start, credentials, crashes of either side, the end."""

from __future__ import annotations

import os
import signal
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.embedded_postgres.process import read_postmaster
from lab.servers import await_status, federation
from tests.api.calls import binding
from tests.e2e.planes import SECONDS, Served

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Running(Served):
    """A server that serves, and its admin."""

    def clusters(self, *, token: str | None = None) -> list[str]:
        caller = self.caller(self.token if token is None else token or None)
        return [cluster.metadata.name for cluster in caller.ask("ListClusters").clusters]

    def schedule(self, name: str) -> Any:
        anywhere = binding(name, replicas=2, placement={"replica_scheduling": None})
        return self.ask("Schedule", binding=anywhere)

    def binding(self, name: str) -> Any:
        return self.ask("GetBinding", namespace="shop", name=name)

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


def code_of(error: pytest.ExceptionInfo[grpc.RpcError]) -> grpc.StatusCode:
    return error.value.code()


def test_a_first_start_makes_everything_and_tells_no_secret(data: Path) -> None:
    with Running.on(data) as running:
        token = running.token
        assert stat.S_IMODE(running.token_file.stat().st_mode) == 0o600
        assert str(running.token_file) in running.server.output
        assert "embedded PostgreSQL" in running.server.output
        await_status(f"http://{running.web}/healthz", 200)
        await_status(f"http://{running.web}/readyz", 200)
        await_status(f"http://{running.web}/ca.pem", 404)
        assert running.clusters() == []
        for wrong in ("", "wrong", token + "x", token.partition(".")[0] + ".wrong"):
            with pytest.raises(grpc.RpcError) as caught:
                running.clusters(token=wrong)
            assert code_of(caught) is grpc.StatusCode.UNAUTHENTICATED
        assert running.server.stop() == 0
        assert token not in running.server.output
        assert token.partition(".")[2] not in running.server.output


def test_a_killed_server_comes_back_with_everything_that_was_answered(
    data: Path,
) -> None:
    with Running.on(data) as running:
        running.enroll("member1")
        before = running.schedule("cart")
        token = running.token_file.read_text(encoding="ascii")
        running.server.kill()
    with Running.on(data) as running:
        assert running.token_file.read_text(encoding="ascii") == token
        assert running.clusters() == ["member1"]
        found = running.binding("cart")
        assert found.binding == before.binding
        assert found.decision.id == before.decision.id


def test_a_database_that_dies_is_started_again_and_the_server_lives_on(
    data: Path,
) -> None:
    with Running.on(data) as running:
        running.enroll("member1")
        before = running.schedule("cart")
        os.kill(postmaster_pid(running), signal.SIGKILL)
        found = running.binding_once_available("cart")
        assert found.binding == before.binding
        await_status(f"http://{running.web}/readyz", 200)
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
    data: Path, tmp_path: Path, fresh_database_url: str
) -> None:
    with Running.on(data) as running:
        endpoint = running.server.output.partition("API")[2].split()[0]
        second = federation("serve", "--insecure", "--data-dir", str(data))
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
