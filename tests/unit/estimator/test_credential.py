from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from estimator.credential import (
    Credential,
    CredentialFile,
    KeptCredential,
    load_credential,
    store_credential,
)
from federation.certificates import ca_fingerprint, make_certificates
from federation.model.errors import PreconditionFailed

CREDENTIAL = Credential(
    cluster="member1",
    endpoints=("cp:7443", "cp2:7443"),
    credential="id.secret",
    expires_at=1.5,
    ca="PEM",
)


def load(path: Path, cluster: str = "member1", ca_sha256: str = "") -> Credential | None:
    return load_credential(CredentialFile(path), cluster=cluster, ca_sha256=ca_sha256)


def test_what_is_stored_is_read_back_and_nobody_else_may(tmp_path: Path) -> None:
    path = tmp_path / "state" / "agent-member1.json"
    store_credential(CredentialFile(path), CREDENTIAL)
    store_credential(CredentialFile(path), CREDENTIAL)
    assert load(path) == CREDENTIAL
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_no_file_is_no_credential(tmp_path: Path) -> None:
    assert load(tmp_path / "none") is None


def test_a_credential_of_another_cluster_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "credential"
    store_credential(CredentialFile(path), CREDENTIAL)
    with pytest.raises(PreconditionFailed, match="is for cluster 'member1', not 'member2'"):
        load(path, "member2")


def test_a_credential_belongs_to_the_fleet_of_its_root(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "tls", ["127.0.0.1"], now=datetime.now(UTC))
    pem = files.ca.read_text(encoding="ascii")
    kept = msgspec.structs.replace(CREDENTIAL, ca=pem)
    path = tmp_path / "credential"
    store_credential(CredentialFile(path), kept)
    assert load(path) == load(path, "member1", ca_fingerprint(pem.encode())) == kept
    with pytest.raises(PreconditionFailed, match=r"has the SHA-256 [0-9a-f]{64}, not 0000"):
        load(path, "member1", "0" * 64)


@pytest.mark.parametrize("content", [b"not JSON", b'{"cluster": "\xff"}'])
def test_a_file_that_is_something_else_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "credential"
    path.write_bytes(content)
    with pytest.raises(PreconditionFailed, match=f"credential file {path} cannot be read"):
        load(path)


async def test_sessions_only_go_forward_whatever_the_clock_says(tmp_path: Path) -> None:
    path = tmp_path / "credential"
    kept = KeptCredential(CredentialFile(path), CREDENTIAL)
    assert await kept.begin_session(1_000.0, ["cp:7443"]) == 1_000_000
    assert await kept.begin_session(900.0, ["cp:7443"]) == 1_000_001
    stored = load(path)
    assert stored is not None
    after_a_restart = KeptCredential(CredentialFile(path), stored)
    assert await after_a_restart.begin_session(0.0, ["cp:7443"]) == 1_000_002
    assert await after_a_restart.begin_session(2_000.0, ["cp:7443"]) == 2_000_000


@pytest.mark.parametrize(
    ("kept", "clock", "then"),
    [
        # The clock was wrong, and what was kept before is right.
        (1_000_000, 9_000.0, 1_000_000),
        # What was kept is wrong: nothing of it holds.
        (9_000_000, 1_000.0, 0),
    ],
)
async def test_a_session_that_was_refused_as_one_of_the_future_is_forgotten(
    tmp_path: Path, kept: int, clock: float, then: int
) -> None:
    path = tmp_path / "credential"
    credential = KeptCredential(
        CredentialFile(path), msgspec.structs.replace(CREDENTIAL, epoch=kept)
    )
    await credential.begin_session(clock, ["cp:7443"])
    await credential.forget_session(clock)
    stored = load(path)
    assert stored is not None
    assert stored.epoch == then
