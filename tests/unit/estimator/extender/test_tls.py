"""The extender's TLS: which clients are heard, and files that are renewed while it serves."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from estimator.extender.server import renewed_tls, server_tls
from estimator.watched_cluster import WatchedCluster
from federation.certificates import make_certificates
from federation.model.errors import PreconditionFailed
from federation.runtime.watched_files import WatchedFiles
from lab.extenders import extender_of, pod, two_nodes
from tests.unit.estimator.extender.test_server import POD, served


@pytest.fixture
def cluster() -> WatchedCluster:
    return two_nodes(pod("busy", "n0", cpu=3000))


def client_certificate(path: Path) -> Path:
    """A client that vouches for itself: certificate and key in one file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-scheduler")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(certificate.public_bytes(pem) + key_pem)
    return path


async def test_tls_hears_only_clients_of_its_ca(cluster: WatchedCluster, tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["127.0.0.1"], now=datetime.now(UTC))
    client = client_certificate(tmp_path / "client.pem")
    server = await served(extender_of(cluster), server_tls(files.cert, files.key, client))
    url = f"https://127.0.0.1:{server.port}/filter"
    body = {"Pod": POD, "NodeNames": ["n1"]}

    nobody = ssl.create_default_context(cafile=str(files.ca))
    known = ssl.create_default_context(cafile=str(files.ca))
    known.load_cert_chain(client)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.post(url, json=body, ssl=nobody)
        async with session.post(url, json=body, ssl=known) as response:
            assert response.status == 200
    await server.stop()


async def test_new_connections_get_renewed_tls_files(
    cluster: WatchedCluster, tmp_path: Path
) -> None:
    """A new certificate, and clients of another authority in place of those before."""
    shown, authority = tmp_path / "shown", tmp_path / "clients.pem"
    before = make_certificates(shown, ["127.0.0.1"], now=datetime.now(UTC))
    trusted_before = before.ca.read_bytes().decode("ascii")
    client_before = client_certificate(tmp_path / "before.pem")
    client_after = client_certificate(tmp_path / "after.pem")
    authority.write_bytes(client_before.read_bytes())
    paths = (before.cert, before.key, authority)
    contexts = WatchedFiles("TLS", paths, lambda: server_tls(*paths))
    server = await served(extender_of(cluster), renewed_tls(lambda: contexts.value))
    url = f"https://127.0.0.1:{server.port}/healthz"

    async def is_answered(trusted: str, client: Path) -> bool:
        context = ssl.create_default_context(cadata=trusted)
        context.load_cert_chain(client)
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(url, ssl=context) as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

    assert await is_answered(trusted_before, client_before)
    assert not await is_answered(trusted_before, client_after)
    after = make_certificates(tmp_path / "next", ["127.0.0.1"], now=datetime.now(UTC))
    for path, renewed in ((before.cert, after.cert), (before.key, after.key)):
        path.write_bytes(renewed.read_bytes())
    authority.write_bytes(client_after.read_bytes())
    assert contexts.read_again()
    trusted_after = after.ca.read_bytes().decode("ascii")
    assert await is_answered(trusted_after, client_after)
    assert not await is_answered(trusted_after, client_before)
    assert not await is_answered(trusted_before, client_after)
    await server.stop()


def test_tls_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(PreconditionFailed, match="TLS files"):
        server_tls(tmp_path / "no.pem", tmp_path / "no.key", None)
