"""TLS files that change while a control plane runs: the new ones count, and nothing ends."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
import pytest

from federation.authenticators.fetching import fetched
from federation.certificates import CertificateFiles, ca_fingerprint, make_certificates
from federation.model.errors import Unavailable
from federation.runtime.addresses import Address
from lab.control_planes import RunningControlPlane, refused, running_control_plane
from lab.patience import PATIENCE_SECONDS, until
from tests.unit.authenticators.test_certificates import Authority, caller, flags_of, listed

HOSTS = ["127.0.0.1", "localhost"]


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return make_certificates(tmp_path / "tls", HOSTS)


@pytest.fixture
async def plane(
    database_url: str, tmp_path: Path, files: CertificateFiles
) -> AsyncIterator[RunningControlPlane]:
    flags = flags_of(tmp_path, files, Authority())
    async with running_control_plane(database_url, tmp_path, **flags) as running:
        yield running


async def shown_at(address: Address) -> bytes:
    """The certificate that a server shows, DER."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    async with asyncio.timeout(PATIENCE_SECONDS):
        _, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return shown


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


async def test_renewed_certificates_are_shown_on_both_ports(
    plane: RunningControlPlane, files: CertificateFiles
) -> None:
    addresses = [plane.plane.endpoint, plane.plane.client_endpoint]
    for address in addresses:
        assert address is not None
        assert await shown_at(address) == der(files.cert)
        for _ in range(2):
            make_certificates(files.cert.parent, HOSTS)
            plane.plane._file_watch.request()
            await until(lambda at=address: shown_at(at), der(files.cert).__eq__)
    # A connection of before goes on, and a new one is served.
    await plane.admin.ask("ListClusters")
    token = plane.plane.admin_token_file.read_text().strip()
    await listed(caller(plane, None, token=token, endpoint=plane.plane.endpoint))


async def test_a_certificate_without_its_key_changes_nothing(
    plane: RunningControlPlane, files: CertificateFiles, tmp_path: Path
) -> None:
    before = der(files.cert)
    others = make_certificates(tmp_path / "others", HOSTS)
    files.cert.write_bytes(others.cert.read_bytes())
    tls = plane.plane._file_watch._watched
    assert [await asyncio.to_thread(read_again) for read_again, _ in tls] == [False, False]
    assert await shown_at(plane.plane.endpoint) == before


async def test_clients_of_the_renewed_authority_are_let_in(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    old, new = Authority(), Authority()
    for authority, other in ((old, new), (new, old)):
        (tmp_path / "clients.pem").write_bytes(authority.pem)
        plane.plane._file_watch.request()
        shown = authority.issue("", uri="spiffe://a/b")

        async def code(shown: Any = shown) -> grpc.StatusCode:
            try:
                await listed(caller(plane, shown))
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        await until(code, lambda answer: answer is grpc.StatusCode.OK)
        refusal = await refused(listed(caller(plane, other.issue("", uri="spiffe://a/b"))))
        assert refusal.code is grpc.StatusCode.UNAVAILABLE


async def test_a_renewed_authority_is_told_to_agents_that_join(
    plane: RunningControlPlane, files: CertificateFiles, tmp_path: Path
) -> None:
    others = make_certificates(tmp_path / "others", HOSTS)
    for source, target in ((others.key, files.key), (others.cert, files.cert)):
        target.write_bytes(source.read_bytes())
    files.ca.write_bytes(others.ca.read_bytes())
    plane.plane._file_watch.request()
    url = f"http://{plane.plane.web_endpoint}/ca.pem"

    async def served() -> bytes:
        return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read())

    await until(served, others.ca.read_bytes().__eq__)
    # A caller that trusts the new authority; the one of before trusted the old.
    token = plane.plane.admin_token_file.read_text().strip()
    admin = caller(plane, None, token=token, endpoint=plane.plane.endpoint)
    made = await admin.ask("CreateJoinToken", cluster="eu-1")
    fingerprint = ca_fingerprint(others.ca.read_bytes())
    assert (made.ca_sha256, fingerprint in made.command) == (fingerprint, True)


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[tuple[str, CertificateFiles]]:
    """An identity provider with TLS: its address, and the files of its certificate."""
    files = make_certificates(tmp_path / "provider", HOSTS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}/keys", files
        server.shutdown()
        thread.join(PATIENCE_SECONDS)


def test_the_authority_of_an_identity_provider_is_read_for_each_fetch(
    provider: tuple[str, CertificateFiles], tmp_path: Path
) -> None:
    """OIDC and TokenReview alike: both fetch by this function, with the path of their authority."""
    url, files = provider
    ca = tmp_path / "ca.pem"
    other = make_certificates(tmp_path / "other", HOSTS)
    for authority, is_trusted in ((files, True), (other, False), (files, True)):
        ca.write_bytes(authority.ca.read_bytes())
        if is_trusted:
            assert fetched(url, ca) == b"{}"
        else:
            with pytest.raises(Unavailable, match="certificate"):
                fetched(url, ca)
