"""What ``fedctl`` says of a control plane whose certificate it does not trust."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from click.testing import CliRunner

from federation.certificates import make_certificates
from federation.cli.__main__ import fedctl
from tests.control_planes import running_control_plane


@pytest.mark.parametrize("named", [False, True])
async def test_the_option_that_is_at_fault_is_named(
    database_url: str, tmp_path: Path, named: bool
) -> None:
    files = make_certificates(tmp_path / "certs", ["127.0.0.1"])
    other = make_certificates(tmp_path / "other", ["127.0.0.1"])
    async with running_control_plane(
        database_url,
        tmp_path,
        tls_cert=str(files.cert),
        tls_key=str(files.key),
        tls_ca=str(files.ca),
    ) as running:
        endpoint, token = str(running.plane.endpoint), str(running.plane.admin_token_file)
        trust = ["--ca", str(other.ca)] if named else []
        arguments = ["--endpoint", endpoint, "--token-file", token, *trust, "get", "clusters"]
        result = await asyncio.to_thread(CliRunner().invoke, fedctl, arguments)
    assert result.exit_code == 1
    remedy = f"--ca is {other.ca}" if named else "name its authority with --ca"
    assert result.stderr.startswith(f"error: the certificate of {endpoint} is not trusted (")
    assert result.stderr.rstrip().endswith(f"): {remedy}")
