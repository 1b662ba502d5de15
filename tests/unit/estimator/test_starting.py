"""An extender whose control plane says nothing: it waits for a while, and then it serves."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from estimator import app, side_servers
from estimator.credential import Credential, CredentialFile, store_credential
from estimator.options import OPTIONS
from estimator.settings import run_settings
from tests.e2e.test_scorers import free_port
from tests.unit.estimator.control_plane.lines import exchange

DUMP = Path(__file__).parents[3] / "examples" / "clusters" / "member1.json"


async def test_it_does_not_wait_for_ever_to_be_told_what_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(side_servers, "PROMISES_SECONDS", 0.01)
    caplog.set_level(logging.INFO)
    async with exchange() as silent:
        kept = tmp_path / "credential"
        credential = Credential(
            cluster="m", endpoints=(silent.endpoint,), credential="id.secret", expires_at=2.0**33
        )
        store_credential(CredentialFile(kept), credential)
        flags = {
            "cluster": "m",
            "endpoint": (silent.endpoint,),
            "insecure": "true",
            "from": str(DUMP),
            "credential_file": str(kept),
            "extender_listen": f"127.0.0.1:{free_port()}",
        }
        loaded = OPTIONS.load(flags=flags, environment={}, document={}, source="")
        stopping = asyncio.Event()
        running = asyncio.create_task(app.run(run_settings(loaded, tmp_path), stopping))
        line = await silent.next_line()
        async with asyncio.timeout(20.0):
            while "extender is served" not in caplog.text:  # noqa: ASYNC110 - nothing says when
                await asyncio.sleep(0.01)
        assert "begins without knowing what is promised here" in caplog.text
        line.end()
        stopping.set()
        await running
