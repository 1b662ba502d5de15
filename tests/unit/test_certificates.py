from __future__ import annotations

import hashlib
import socket
import ssl
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from federation.certificates import (
    CertificateFiles,
    ca_fingerprint,
    check_issued,
    make_certificates,
)
from federation.model.errors import InvalidRequest, PreconditionFailed


def now() -> datetime:
    return datetime.now(UTC)


def handshake(files: CertificateFiles, server_name: str) -> None:
    """A real TLS connection that trusts the CA only; raises ssl.SSLError where it must not work."""
    here, there = socket.socketpair()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.cert, files.key)
    client = ssl.create_default_context(cafile=str(files.ca))

    def answer() -> None:
        try:
            with server.wrap_socket(there, server_side=True) as connection:
                connection.recv(1)
        except OSError:
            there.close()

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=server_name) as connection:
            connection.send(b"x")
    finally:
        here.close()
        thread.join()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "api.example"])
def test_clients_that_trust_the_ca_accept_every_host(tmp_path: Path, name: str) -> None:
    files = make_certificates(
        tmp_path / "tls", ["localhost", "127.0.0.1", "::1", "api.example"], now=now()
    )
    handshake(files, name)


def test_another_host_is_not_accepted(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["localhost"], now=now())
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(files, "elsewhere.example")


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["localhost"], now=now())
    for key in (files.ca_key, files.key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_a_second_run_keeps_the_authority_and_issues_anew(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["localhost"], now=now())
    ca, cert = files.ca.read_bytes(), files.cert.read_bytes()
    make_certificates(tmp_path, ["other.example"], now=now())
    assert files.ca.read_bytes() == ca
    assert files.cert.read_bytes() != cert
    handshake(files, "other.example")


def test_a_second_run_forgets_no_host(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["first.example", "10.0.0.5"], now=now())
    make_certificates(tmp_path, ["second.example"], now=now())
    files = make_certificates(tmp_path, ["first.example", "third.example"], now=now())
    for host in ("first.example", "10.0.0.5", "second.example", "third.example"):
        handshake(files, host)
    files.cert.write_bytes(b"no certificate")
    handshake(make_certificates(tmp_path, ["fourth.example"], now=now()), "fourth.example")


def test_an_authority_that_did_not_issue_the_certificate_is_noticed(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "one", ["localhost"])
    other = make_certificates(tmp_path / "other", ["localhost"])
    check_issued(files.cert, files.key, files.ca)
    with pytest.raises(PreconditionFailed, match="is not the authority of") as caught:
        check_issued(files.cert, files.key, other.ca)
    assert str(other.ca) in caught.value.message
    assert "--tls-ca" in caught.value.message
    with pytest.raises(PreconditionFailed, match="cannot be used"):
        check_issued(files.cert, other.key, files.ca)
    with pytest.raises(PreconditionFailed, match="cannot be used"):
        check_issued(files.cert, files.key, files.key)


def test_half_an_authority_is_not_replaced(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["localhost"], now=now())
    files.ca_key.unlink()
    with pytest.raises(PreconditionFailed, match=r"ca\.key"):
        make_certificates(tmp_path, ["localhost"], now=now())


def test_a_key_of_another_authority_is_noticed(tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "a", ["localhost"], now=now())
    other = make_certificates(tmp_path / "b", ["localhost"], now=now())
    files.ca_key.write_bytes(other.ca_key.read_bytes())
    with pytest.raises(PreconditionFailed, match="not the key"):
        make_certificates(tmp_path / "a", ["localhost"], now=now())


def test_every_host_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        make_certificates(tmp_path, ["fine", "no host", ""], now=now())
    assert [each.field for each in caught.value.violations] == ["hosts[1]", "hosts[2]"]
    assert list(tmp_path.iterdir()) == []


def test_the_fingerprint_is_of_the_der_of_the_first_certificate(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["localhost"], now=now())
    der = ssl.PEM_cert_to_DER_cert(files.ca.read_text(encoding="ascii"))
    pem = b"some words before\n" + files.ca.read_bytes() + files.cert.read_bytes()
    assert ca_fingerprint(pem) == hashlib.sha256(der).hexdigest()


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"-----BEGIN CERTIFICATE-----\nAAAA",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ],
)
def test_a_file_without_a_certificate_has_no_fingerprint(pem: bytes) -> None:
    with pytest.raises(InvalidRequest):
        ca_fingerprint(pem)
