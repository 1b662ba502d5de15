from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from estimator.agent.enrolment import MAX_CA_BYTES, fetch_pinned_ca, parse_fingerprint
from federation.certificates import make_certificates
from federation.model.errors import InvalidRequest, PermissionRefused, Unavailable


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Nobody reads it."""


@contextmanager
def served(directory: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    return make_certificates(directory, ["localhost"], now=datetime.now(UTC)).ca


def fingerprint_of(path: Path) -> str:
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(path.read_text())).hexdigest()


def test_the_pinned_certificate_is_taken_and_nothing_beside_it(
    authority: Path, tmp_path: Path
) -> None:
    pem = authority.read_text()
    (tmp_path / "ca.pem").write_text(f"a comment\n{pem}\n{pem.replace('M', 'N')}")
    with served(tmp_path) as url:
        fetched = fetch_pinned_ca(f"{url}/ca.pem", fingerprint_of(authority))
    assert ssl.PEM_cert_to_DER_cert(fetched.decode()) == ssl.PEM_cert_to_DER_cert(pem)
    assert fetched.count(b"BEGIN CERTIFICATE") == 1


def test_another_certificate_is_refused(authority: Path) -> None:
    with (
        served(authority.parent) as url,
        pytest.raises(PermissionRefused, match="is not the pinned one"),
    ):
        fetch_pinned_ca(f"{url}/ca.pem", "0" * 64)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>", "holds no PEM certificate"),
        (b"x" * (MAX_CA_BYTES + 1), "holds more than"),
        (
            b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----",
            "cannot be read|not the pin",
        ),
    ],
)
def test_what_is_no_certificate_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "ca.pem").write_bytes(content)
    with served(tmp_path) as url, pytest.raises(PermissionRefused, match=said):
        fetch_pinned_ca(f"{url}/ca.pem", "0" * 64)


def test_what_is_not_there_yet_may_come(tmp_path: Path) -> None:
    with served(tmp_path) as url, pytest.raises(Unavailable, match="404"):
        fetch_pinned_ca(f"{url}/ca.pem", "0" * 64)
    with pytest.raises(Unavailable, match="cannot be fetched"):
        fetch_pinned_ca(f"{url}/ca.pem", "0" * 64)


def test_only_http_is_fetched(authority: Path) -> None:
    with pytest.raises(InvalidRequest, match="--ca-url"):
        fetch_pinned_ca(authority.as_uri(), fingerprint_of(authority))


@pytest.mark.parametrize("text", ["AB:" * 31 + "AB", "sha256:" + "ab" * 32, "ab" * 32])
def test_fingerprints_are_read_as_people_write_them(text: str) -> None:
    assert parse_fingerprint(text) == "ab" * 32


@pytest.mark.parametrize("text", ["", "ab", "ab" * 31 + "xy", "ab" * 33])
def test_other_texts_are_no_fingerprint(text: str) -> None:
    with pytest.raises(ValueError, match="must be a SHA-256 in hex"):
        parse_fingerprint(text)
