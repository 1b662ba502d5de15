"""``fedctl audit export``: each record once and in order, and a file that proves what was there."""

from __future__ import annotations

import asyncio
import fcntl
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.cli import audit_export
from federation.codec.audit import head_to_message, record_to_message
from federation.model.audit import AuditHead, AuditRecord, sealed
from federation.model.errors import DeadlineMissed, FederationError, Unavailable
from federation.v1 import access_pb2
from lab.control_planes import RunningControlPlane
from lab.patience import until
from tests.stores import engine
from tests.unit.cli.test_reservations import run
from tests.unit.rpc.test_access import made
from tests.unit.rpc.test_audit import sealed_chain

__all__ = ["engine"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


async def record(running: RunningControlPlane, count: int, of: int) -> Any:
    """So many changes more; the chain once all are sealed."""
    for _ in range(count):
        await made(running, access_pb2.ROLE_VIEWER)
    return await sealed_chain(running.admin, of)


async def exported(running: RunningControlPlane, file: Path) -> Any:
    return await run(running, "audit", "export", "--file", str(file))


def content_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def write(file: Path, content: str) -> None:
    file.write_text(content)


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def seals(lines: str) -> list[int]:
    return [json.loads(line)["seal"] for line in lines.splitlines()]


async def test_each_record_is_a_line_of_json(running: RunningControlPlane) -> None:
    chain = await record(running, 3, of=3)
    result = await run(running, "audit", "export")
    assert result.exit_code == 0, result.output
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["seal"] for each in documents] == [1, 2, 3]
    assert [each["hash"] for each in documents] == [each.hash.hex() for each in chain.records]
    assert documents[0]["method"] == "Access/CreateToken"
    assert documents[0]["requestSha256"] == chain.records[0].request_sha256


async def test_a_file_goes_on_after_its_last_whole_line(
    running: RunningControlPlane, file: Path
) -> None:
    await record(running, 2, of=2)
    assert (await exported(running, file)).exit_code == 0
    assert mode_of(file) == 0o600
    before = content_of(file)
    # As a kill leaves it.
    write(file, f'{before}{{"id": 3, "act')
    await record(running, 2, of=4)
    assert (await exported(running, file)).exit_code == 0
    assert content_of(file).startswith(before)
    assert seals(content_of(file)) == [1, 2, 3, 4]
    # Nothing new: nothing is written.
    assert (await exported(running, file)).exit_code == 0
    assert seals(content_of(file)) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("statements", "text_of"),
    [
        (["UPDATE audit SET actor = 'me' WHERE seal = 3"], "seal 3 (id 3) is not what was sealed"),
        (["DELETE FROM audit WHERE seal = 3"], "3 is missing"),
        (
            [
                "DELETE FROM audit WHERE seal > 1",
                "UPDATE audit_head SET seal = 1, hash = (SELECT hash FROM audit WHERE seal = 1)",
            ],
            "it ends at seal 1, and record 2 was written already",
        ),
    ],
    ids=["altered", "removed", "put back"],
)
async def test_what_does_not_go_on_where_the_file_ends_is_not_written(
    running: RunningControlPlane,
    engine: AsyncEngine,
    file: Path,
    statements: list[str],
    text_of: str,
) -> None:
    await record(running, 2, of=2)
    assert (await exported(running, file)).exit_code == 0
    before = content_of(file)
    await record(running, 2, of=4)
    async with engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))
    result = await exported(running, file)
    assert result.exit_code == 1
    assert text_of in result.output
    assert content_of(file) == before


async def test_a_chain_that_was_written_anew_is_found(
    running: RunningControlPlane, file: Path
) -> None:
    """The file has another record at the end of the same chain."""
    await record(running, 2, of=2)
    assert (await exported(running, file)).exit_code == 0
    first, last = content_of(file).splitlines()
    another = {**json.loads(last), "hash": "00" * 32}
    write(file, f"{first}\n{json.dumps(another)}\n")
    result = await exported(running, file)
    assert result.exit_code == 1
    assert "the record with seal 2 is another than was written" in result.output


async def test_what_was_forgotten_before_is_said(
    running: RunningControlPlane, engine: AsyncEngine, file: Path
) -> None:
    await record(running, 1, of=1)
    assert (await exported(running, file)).exit_code == 0
    await record(running, 3, of=4)
    async with engine.begin() as connection:
        await connection.execute(
            text(
                "UPDATE audit_head SET pruned_seal = 3, "
                "pruned_hash = (SELECT hash FROM audit WHERE seal = 3)"
            )
        )
        await connection.execute(text("DELETE FROM audit WHERE seal <= 3"))
    result = await exported(running, file)
    assert result.exit_code == 0, result.output
    assert "Records 2 to 3 were forgotten before this." in result.stderr
    assert seals(content_of(file)) == [1, 4]


@pytest.mark.parametrize(
    "content", ["no newline", "no json\n", "[1]\n", '{"seal": 1}\n', '{"seal": 1, "hash": "x"}\n']
)
async def test_a_file_of_something_else_is_left_alone(
    running: RunningControlPlane, file: Path, content: str
) -> None:
    write(file, content)
    result = await exported(running, file)
    assert result.exit_code == 1
    assert "--file: the last line of" in result.output
    assert content_of(file) == content


async def test_two_exports_do_not_write_one_file(running: RunningControlPlane, file: Path) -> None:
    with file.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        result = await exported(running, file)
    assert result.exit_code == 1
    assert "is written by another export" in result.output


async def test_it_goes_on_with_what_comes(running: RunningControlPlane, file: Path) -> None:
    await record(running, 1, of=1)
    watching = await asyncio.create_subprocess_exec(
        *fedctl(running), "audit", "export", "--watch", "--file", str(file)
    )
    try:

        async def written() -> list[int]:
            await asyncio.sleep(0.05)
            return seals(content_of(file))

        await until(written, lambda found: found == [1])
        await record(running, 2, of=3)
        await until(written, lambda found: found == [1, 2, 3])
    finally:
        watching.terminate()
        await watching.wait()


def fedctl(running: RunningControlPlane) -> list[str]:
    plane = running.plane
    flags = ["--endpoint", str(plane.endpoint), "--token-file", str(plane.admin_token_file)]
    return [sys.executable, "-m", "federation.cli", "--insecure", *flags]


@pytest.mark.parametrize("error", [Unavailable("it stops"), DeadlineMissed("it is slow")])
async def test_a_control_plane_that_is_away_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, error: FederationError
) -> None:
    monkeypatch.setattr(audit_export, "POLL_SECONDS", 0.0)
    (record,), head = sealed([AuditRecord(id=1, actor="ann", method="Some/Thing")], AuditHead())
    page = access_pb2.GetAuditChainResponse(
        records=[record_to_message(record)], head=head_to_message(head)
    )
    answers: list[Any] = [error, page]

    class Api:
        async def get_audit_chain(self, _: int) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    api: Any = Api()
    told = audit_export._records(api, last=None, watch=True)
    assert [each.seal for each in await anext(told)] == [1]
    await told.aclose()
    answers[:] = [error]
    with pytest.raises(type(error)):
        await anext(audit_export._records(api, last=None, watch=False))
