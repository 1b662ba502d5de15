"""What is never shown, and what is refused before anybody of ours sees it."""

from __future__ import annotations

import http.client
import itertools
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.v1.access_pb2 import ROLE_VIEWER
from lab.databases import connect, run
from tests.e2e.planes import SECONDS, Plane, serving_plane

AUDITED = "SELECT to_jsonb(one)::text FROM audit one"
UPWARDS = ("../", "..%2f", "%2e%2e/", "..\\", "....//")


@pytest.fixture
def plane(database_url: str, tmp_path: Path) -> Iterator[Plane]:
    """It logs all that it ever does."""
    flags = ("--log-level=debug", "--log-format=json", "--ui=token")
    with serving_plane(database_url, tmp_path, *flags) as served:
        yield served


def audited(plane: Plane) -> list[str]:
    """The audit's records."""

    async def read() -> list[str]:
        connection = await connect(plane.database_url)
        try:
            return [row[0] for row in await connection.fetch(AUDITED)]
        finally:
            await connection.close()

    return run(read())


def test_a_header_beyond_grpcs_limit_is_refused_before_the_audit(plane: Plane) -> None:
    """gRPC itself answers: no code of ours reads it, so that no audit tells of it."""
    with plane.unharmed():
        before = len(audited(plane))
        metadata = (("authorization", f"Bearer {plane.token}"), ("x-large", "a" * 200_000))
        listing: Any = plane.channel.unary_unary("/federation.v1.Clusters/ListClusters")
        with pytest.raises(grpc.RpcError) as refused:
            listing(b"", metadata=metadata, timeout=SECONDS)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(audited(plane)) == before


def test_no_secret_is_in_the_log_the_audit_or_the_list_of_processes(plane: Plane) -> None:
    joining = plane.ask("CreateJoinToken", cluster="member2")
    made = plane.ask("CreateToken", name="ci", role=ROLE_VIEWER)
    plane.caller(made.secret).ask("ListClusters")
    # A shell puts into the environment what comes before the program: no list of processes has it.
    variable, *words = shlex.split(joining.command)
    assert variable == f"ESTIMATOR_JOIN_TOKEN={joining.token}"
    assert not any(joining.token in word for word in words)
    # Refused with what was right somewhere else, and with what looks like it.
    for wrong in (plane.agent_credential, joining.token, f"{made.secret}x"):
        plane.refused(wrong, "ListClusters")
    secrets = [plane.token, plane.agent_credential, joining.token, made.secret]
    records = audited(plane)
    assert any("CreateToken" in each for each in records)
    written = "\n".join([plane.server.output, *plane.server.newest_lines(), *records])
    shown = Path(f"/proc/{plane.server.process.pid}/cmdline")
    if shown.exists():
        written += shown.read_text(encoding="utf-8")
    for each in secrets:
        # What comes before the dot is a name.
        name, _, secret = each.partition(".")
        assert name
        assert secret
        assert secret not in written


def test_no_path_leads_out_of_the_page(plane: Plane) -> None:
    connection = http.client.HTTPConnection(plane.web, timeout=SECONDS)
    for start, up in itertools.product(("/ui/static/", "/"), UPWARDS):
        connection.putrequest("GET", f"{start}{up * 12}etc/passwd")
        connection.endheaders()
        answer = connection.getresponse()
        assert b"root:" not in answer.read()
        assert answer.status in {400, 401, 403, 404}, (start, up)
    connection.close()
