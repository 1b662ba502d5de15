"""A hash that was kept elsewhere shows what the chain alone does not: that it is another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.codec.audit import record_from_message
from federation.model.audit import AuditHead, sealed
from federation.v1 import access_pb2
from lab.control_planes import RunningControlPlane
from tests.stores import engine
from tests.unit.cli.test_reservations import run
from tests.unit.rpc.test_access import made
from tests.unit.rpc.test_audit import sealed_chain

__all__ = ["engine"]


async def chain_of(running: RunningControlPlane, count: int) -> Any:
    """So many records more, sealed."""
    before = (await sealed_chain(running.admin, 0)).head.seal
    for _ in range(count):
        await made(running, access_pb2.ROLE_VIEWER)
    return await sealed_chain(running.admin, before + count)


@pytest.fixture
async def kept(running: RunningControlPlane) -> str:
    """The last line that verify printed when there were three records; there are two more now."""
    await chain_of(running, 3)
    result = await run(running, "audit", "verify")
    await chain_of(running, 2)
    return str(result.stdout.splitlines()[-1])


async def verified(running: RunningControlPlane, *options: str) -> tuple[int, str]:
    result = await run(running, "audit", "verify", *options)
    return result.exit_code, str(result.output)


async def test_newer_seals_do_not_matter(running: RunningControlPlane, kept: str) -> None:
    seal, hash_ = kept.removeprefix("seal ").split(" hash ")
    assert seal == "3"
    for written in (kept, f"{kept}\n", f"{seal}:{hash_}"):
        code, output = await verified(running, "--expect", written)
        assert code == 0, output
        assert "seal 3 has the hash that was expected." in output
        assert output.splitlines()[-1].startswith("seal 5 hash ")


@pytest.mark.parametrize("written", ["", "3", "3:ab", "x:" + "0" * 64, "3:" + "G" * 64])
async def test_what_is_no_seal_is_refused(running: RunningControlPlane, written: str) -> None:
    code, output = await verified(running, "--expect", written)
    assert code == 2
    assert "must be SEAL:HASH" in output


async def test_a_chain_written_anew_is_found_by_it_alone(
    running: RunningControlPlane, kept: str, engine: AsyncEngine
) -> None:
    chain = await sealed_chain(running.admin, 5)
    records = [replace(record_from_message(each), actor="nobody") for each in chain.records]
    forged, head = sealed(records, AuditHead())
    async with engine.begin() as connection:
        for record in forged:
            await connection.execute(
                text("UPDATE audit SET actor = :actor, hash = :hash WHERE seal = :seal"),
                {"actor": record.actor, "hash": record.hash, "seal": record.seal},
            )
        await connection.execute(text("UPDATE audit_head SET hash = :hash"), {"hash": head.hash})
    assert (await verified(running))[0] == 0
    code, output = await verified(running, "--expect", kept)
    assert code == 1
    assert f"The audit was rewritten: seal 3 has the hash {forged[2].hash.hex()}" in output
    assert "as they were sealed" not in output


async def test_a_chain_that_was_cut_off_or_restored_is_found_by_it_alone(
    running: RunningControlPlane, kept: str, engine: AsyncEngine
) -> None:
    async with engine.begin() as connection:
        await connection.execute(
            text("UPDATE audit_head SET seal = 2, hash = (SELECT hash FROM audit WHERE seal = 2)")
        )
        await connection.execute(text("DELETE FROM audit WHERE seal > 2"))
    assert (await verified(running))[0] == 0
    code, output = await verified(running, "--expect", kept)
    assert code == 1
    assert "it ends at seal 2, and seal 3 was expected" in output


async def test_what_was_forgotten_cannot_be_checked_any_more(
    running: RunningControlPlane, kept: str, engine: AsyncEngine
) -> None:
    async def forget(seal: int) -> None:
        async with engine.begin() as connection:
            await connection.execute(
                text(
                    "UPDATE audit_head SET (pruned_seal, pruned_hash) = "
                    "(SELECT seal, hash FROM audit WHERE seal = :seal)"
                ),
                {"seal": seal},
            )
            await connection.execute(text("DELETE FROM audit WHERE seal <= :seal"), {"seal": seal})

    # The last that was forgotten is what the next one stands on.
    await forget(3)
    assert (await verified(running, "--expect", kept))[0] == 0
    code, output = await verified(running, "--expect", f"3:{'0' * 64}")
    assert (code, "The audit was rewritten: seal 3" in output) == (1, True)
    await forget(4)
    code, output = await verified(running, "--expect", kept)
    assert code == 1
    assert "1 records are as they were sealed, from seal 5 on." in output
    assert "Seal 3 cannot be checked any more: records up to seal 4 were forgotten" in output
