"""The chain of the audit, verified and exported by fedctl: what was altered or removed is found."""

from __future__ import annotations

import asyncio
import fcntl
import json
import stat
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from federation.codec.audit import record_from_message
from federation.model.audit import AuditHead, sealed
from lab.control_planes import Plane
from lab.patience import until
from tests.api.calls import VIEWER, made, sealed_chain
from tests.unit.cli.calling import run

ALTERED = "The audit was altered: "
# Of a new database numbers of rows are their places in the chain.
FORGET = (
    "UPDATE audit_head SET pruned_seal = $1, pruned_hash = $2",
    "DELETE FROM audit WHERE id <= $1",
)
CUT = (
    "UPDATE audit_batch SET records = records - last_seal + $1, last_seal = $1, last_id = $1,"
    " hash = $2 WHERE last_seal >= $1"
)
CUT_OFF = (
    "UPDATE audit_head SET seal = $1, hash = $2, sealed_id = $1",
    "DELETE FROM audit_batch WHERE last_seal - records >= $1",
    CUT,
    "DELETE FROM audit WHERE id > $1",
)


async def record(plane: Plane, count: int, of: int) -> Any:
    """So many changes more; the chain once all are sealed."""
    for _ in range(count):
        await made(plane, VIEWER)
    return await sealed_chain(plane, of)


async def change(plane: Plane, statements: Sequence[str], chain: Any, seal: int) -> None:
    """Run statements about a seal and its hash."""
    hash_ = next(record.hash for record in chain.records if record.seal == seal)
    for statement in statements:
        await plane.sql(statement, *(seal, hash_)[: 1 + ("$2" in statement)])


async def verified(plane: Plane, *options: str) -> tuple[int, str]:
    result = await run(plane, "audit", "verify", *options)
    return result.exit_code, str(result.output)


async def exported(plane: Plane, file: Path) -> Any:
    return await run(plane, "audit", "export", "--file", str(file))


def seals(file: Path) -> list[int]:
    return [json.loads(line)["seal"] for line in content_of(file).splitlines()]


def content_of(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def write(file: Path, content: str) -> None:
    file.write_text(content)


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


async def test_a_record_that_is_altered_or_removed_is_found(fresh: Plane) -> None:
    chain = await record(fresh, 4, of=4)
    assert [each.seal for each in chain.records] == [1, 2, 3, 4]
    code, output = await verified(fresh)
    assert code == 0, output
    assert "4 records are as they were sealed, from seal 1 on." in output
    assert f"seal 4 hash {chain.head.hash.hex()}" in output
    listed = await run(fresh, "audit", "list", "--since", "24h")
    assert "Access/CreateToken" in listed.stdout
    for statement, finding in (
        ("UPDATE audit SET actor = 'somebody else' WHERE id = 2", "is not what was sealed"),
        ("DELETE FROM audit WHERE id = 2", ALTERED),
        ("DELETE FROM audit", "it ends at seal 0, and its head is 4"),
    ):
        await fresh.sql(statement)
        code, output = await verified(fresh)
        assert (code, finding in output) == (1, True), output


async def test_a_hash_that_was_kept_elsewhere_shows_a_chain_that_was_written_anew(
    fresh: Plane,
) -> None:
    """Which the chain alone does not."""
    await record(fresh, 3, of=3)
    kept = (await verified(fresh))[1].splitlines()[-1]
    chain = await record(fresh, 2, of=5)
    seal, hash_ = kept.removeprefix("seal ").split(" hash ")
    assert seal == "3"
    for written in (kept, f"{kept}\n", f"{seal}:{hash_}"):
        code, output = await verified(fresh, "--expect", written)
        assert code == 0, output
        assert "seal 3 has the hash that was expected." in output
        assert output.splitlines()[-1].startswith("seal 5 hash ")
    for wrong in ("", "3", "3:ab", "x:" + "0" * 64, "3:" + "G" * 64):
        code, output = await verified(fresh, "--expect", wrong)
        assert (code, "must be SEAL:HASH" in output) == (2, True)
    records = [replace(record_from_message(each), actor="nobody") for each in chain.records]
    forged, head = sealed(records, AuditHead())
    await fresh.sql("UPDATE audit SET actor = 'nobody'")
    for entry in forged:
        await fresh.sql(
            "UPDATE audit_batch SET hash = $1 WHERE last_seal = $2", entry.hash, entry.seal
        )
        await fresh.sql(
            "UPDATE audit_batch SET previous_hash = $1 WHERE last_seal - records = $2",
            entry.hash,
            entry.seal,
        )
    await fresh.sql("UPDATE audit_head SET hash = $1", head.hash)
    assert (await verified(fresh))[0] == 0
    code, output = await verified(fresh, "--expect", kept)
    assert code == 1
    assert f"The audit was rewritten: seal 3 has the hash {forged[2].hash.hex()}" in output
    assert "as they were sealed" not in output
    # Nor does it show that one was cut off, or put back.
    await change(fresh, CUT_OFF, await fresh.ask("GetAuditChain"), 2)
    assert (await verified(fresh))[0] == 0
    code, output = await verified(fresh, "--expect", kept)
    assert (code, "it ends at seal 2, and seal 3 was expected" in output) == (1, True)


async def test_what_was_forgotten_cannot_be_checked_any_more(fresh: Plane) -> None:
    await record(fresh, 3, of=3)
    kept = (await verified(fresh))[1].splitlines()[-1]
    chain = await record(fresh, 2, of=5)
    # The last that was forgotten is what the next one stands on.
    await change(fresh, FORGET, chain, 3)
    assert (await verified(fresh, "--expect", kept))[0] == 0
    code, output = await verified(fresh, "--expect", f"3:{'0' * 64}")
    assert (code, "The audit was rewritten: seal 3" in output) == (1, True)
    await change(fresh, FORGET, chain, 4)
    code, output = await verified(fresh, "--expect", kept)
    assert code == 1
    assert "1 records are as they were sealed, from seal 5 on." in output
    assert "Seal 3 cannot be checked any more: records up to seal 4 were forgotten" in output


async def test_each_record_is_a_line_and_a_file_goes_on_after_its_last_whole_one(
    fresh: Plane, file: Path
) -> None:
    chain = await record(fresh, 2, of=2)
    result = await run(fresh, "audit", "export")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["hash"] for each in documents] == [each.hash.hex() for each in chain.records]
    assert documents[0]["method"] == "Access/CreateToken"
    assert documents[0]["requestSha256"] == chain.records[0].request_sha256
    assert (await exported(fresh, file)).exit_code == 0
    assert mode_of(file) == 0o600
    before = content_of(file)
    assert before == result.stdout
    # As a kill leaves it.
    write(file, f'{before}{{"id": 3, "act')
    await record(fresh, 2, of=4)
    # The second time there is nothing new: nothing is written.
    for _ in range(2):
        assert (await exported(fresh, file)).exit_code == 0
        assert content_of(file).startswith(before)
        assert seals(file) == [1, 2, 3, 4]
    with file.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        result = await exported(fresh, file)
    assert (result.exit_code, "is written by another export" in result.output) == (1, True)
    # The file has another record at the end of the same chain.
    *lines, last = content_of(file).splitlines()
    another = json.dumps({**json.loads(last), "hash": "00" * 32})
    write(file, "\n".join([*lines, another, ""]))
    result = await exported(fresh, file)
    assert result.exit_code == 1
    assert "the record with seal 4 is another than was written" in result.output


@pytest.mark.parametrize(
    ("statements", "seal", "finding"),
    [
        (["UPDATE audit SET actor = 'me' WHERE id = $1"], 3, "is not what was sealed"),
        (["DELETE FROM audit WHERE id >= $1"], 3, "it ends at seal 2, and its head is 4"),
        (CUT_OFF, 1, "it ends at seal 1, and record 2 was written already"),
    ],
    ids=["altered", "removed", "put back"],
)
async def test_what_does_not_go_on_where_the_file_ends_is_not_written(
    fresh: Plane, file: Path, statements: Sequence[str], seal: int, finding: str
) -> None:
    await record(fresh, 2, of=2)
    assert (await exported(fresh, file)).exit_code == 0
    before = content_of(file)
    await change(fresh, statements, await record(fresh, 2, of=4), seal)
    result = await exported(fresh, file)
    assert (result.exit_code, finding in result.output) == (1, True), result.output
    assert content_of(file) == before


async def test_what_was_forgotten_before_is_said(fresh: Plane, file: Path) -> None:
    await record(fresh, 1, of=1)
    assert (await exported(fresh, file)).exit_code == 0
    await change(fresh, FORGET, await record(fresh, 3, of=4), 3)
    result = await exported(fresh, file)
    assert result.exit_code == 0, result.output
    assert "Records 2 to 3 were forgotten before this." in result.stderr
    assert seals(file) == [1, 4]


async def test_a_file_of_something_else_is_left_alone(api: Plane, file: Path) -> None:
    for content in (
        *("no newline", "no json\n", "[1]\n", '{"seal": 1}\n'),
        '{"seal": 1, "hash": "x"}\n',
    ):
        write(file, content)
        result = await exported(api, file)
        assert (result.exit_code, "--file: the last line of" in result.output) == (1, True)
        assert content_of(file) == content


async def test_it_goes_on_with_what_comes(fresh: Plane, file: Path) -> None:
    await record(fresh, 1, of=1)
    flags = ["--endpoint", str(fresh.plane.endpoint)]
    flags += ["--token-file", str(fresh.plane.admin_token_file)]
    program = [sys.executable, "-m", "federation.cli", "--insecure", *flags]
    watching = await asyncio.create_subprocess_exec(
        *program, "audit", "export", "--watch", "--file", str(file)
    )

    async def written() -> list[int]:
        await asyncio.sleep(0.05)
        return seals(file)

    try:
        await until(written, lambda found: found == [1])
        await record(fresh, 2, of=3)
        await until(written, lambda found: found == [1, 2, 3])
    finally:
        watching.terminate()
        await watching.wait()
