"""Client certificates on a port of their own: whom they stand for, and which are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from federation.certificates import CertificateFiles, make_certificates
from federation.cli.__main__ import fedctl
from lab.control_planes import (
    Caller,
    RunningControlPlane,
    refused,
    report,
    running_control_plane,
)
from lab.held_clocks import HeldClock
from tests.api.calls import VIEWER, in_namespace, made, scheduled
from tests.unit.authenticators.test_oidc import audited

DENIED, UNAUTHENTICATED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
RULES: dict[str, Any] = {
    "apiVersion": "fedsched.io/v1",
    "kind": "RoleRules",
    "rules": [
        {"from": "certificate", "claim": "organization", "value": "platform", "role": "operator"},
        {
            "from": "certificate",
            "claim": "commonName",
            "value": "ci-*",
            "role": "scheduler",
            "namespaces": ["shop"],
        },
        {"from": "certificate", "claim": "uri", "value": "spiffe://a/*", "role": "viewer"},
    ],
}


@dataclass
class Authority:
    """Issues client certificates."""

    def __post_init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clients")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = self._builder(self.name, self.key).add_extension(constraints, critical=True)
        self.pem = _pem(made.sign(self.key, hashes.SHA256()))

    def issue(self, name: str = "", organization: str = "", uri: str = "") -> tuple[bytes, bytes]:
        """A certificate and its key, PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = ((NameOID.COMMON_NAME, name), (NameOID.ORGANIZATION_NAME, organization))
        subject = x509.Name([x509.NameAttribute(oid, text) for oid, text in parts if text])
        builder = self._builder(subject, key)
        if uri:
            names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
            builder = builder.add_extension(names, critical=False)
        key_pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return _pem(builder.sign(self.key, hashes.SHA256())), key_pem

    def _builder(self, subject: x509.Name, key: Any) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


def flags_of(folder: Path, files: CertificateFiles, authority: Authority) -> dict[str, str]:
    """The settings of a control plane that takes certificates of the authority."""
    (folder / "clients.pem").write_bytes(authority.pem)
    (folder / "rules.yaml").write_text(str(RULES))
    return {
        "tls_cert": str(files.cert),
        "tls_key": str(files.key),
        "tls_ca": str(files.ca),
        "client_listen": "127.0.0.1:0",
        "client_ca": str(folder / "clients.pem"),
        "role_rules": str(folder / "rules.yaml"),
    }


@pytest.fixture
async def plane(
    database_url: str, tmp_path: Path, authority: Authority, clock: HeldClock
) -> AsyncIterator[RunningControlPlane]:
    files = make_certificates(tmp_path / "tls", ["127.0.0.1", "localhost"])
    flags = flags_of(tmp_path, files, authority)
    async with (
        running_control_plane(database_url, tmp_path, clock=clock, **flags) as running,
        running.connected("eu-1", report=report()),
    ):
        yield running


def caller(
    plane: RunningControlPlane,
    shown: tuple[bytes, bytes] | None,
    *,
    token: str | None = None,
    endpoint: object = None,
) -> Caller:
    root = plane.plane._settings.tls_ca
    assert root is not None
    cert, key = shown or (None, None)
    credentials = grpc.ssl_channel_credentials(root.read_bytes(), key, cert)
    target = str(endpoint or plane.plane.client_endpoint)
    return Caller(grpc.aio.secure_channel(target, credentials), token)


async def listed(caller: Caller) -> Any:
    return await caller.ask("ListClusters")


async def test_a_certificate_gives_a_role(
    plane: RunningControlPlane, authority: Authority, tmp_path: Path
) -> None:
    ci = caller(plane, authority.issue("ci-7"))
    await scheduled(ci, in_namespace("shop"))
    outside = await refused(scheduled(ci, in_namespace("bank")))
    assert (outside.code, "may schedule in shop" in outside.message) == (DENIED, True)
    actors = [record.actor for record in await audited(plane)]
    assert any(actor.startswith("subject ci-7 (certificate-") for actor in actors)
    # Who brings a token as well is its holder.
    token = (await made(plane, VIEWER))[0].metadata[0][1].removeprefix("Bearer ")
    viewer = caller(plane, authority.issue("ci-7"), token=token)
    denied = await refused(scheduled(viewer, in_namespace("shop", "other")))
    assert "has the role viewer" in denied.message

    for name, content in zip(("cert", "key"), authority.issue("ann", "platform"), strict=True):
        (tmp_path / name).write_bytes(content)
    flags = ["--endpoint", str(plane.plane.client_endpoint), "--ca", str(tmp_path / "tls/ca.pem")]
    flags += ["--client-cert", str(tmp_path / "cert"), "--client-key", str(tmp_path / "key")]
    result = await asyncio.to_thread(CliRunner().invoke, fedctl, [*flags, "cordon", "eu-1"])
    assert (result.exit_code, result.stdout) == (0, "cluster/eu-1 cordoned\n"), result.output
    alone = await asyncio.to_thread(CliRunner().invoke, fedctl, [*flags[:-2], "get", "clusters"])
    assert (alone.exit_code, "--client-cert: comes with its key" in alone.output) == (1, True)


async def test_what_is_no_certificate_of_that_authority_opens_nothing(
    plane: RunningControlPlane, authority: Authority
) -> None:
    for shown in (Authority().issue("ci-7"), None):
        refusal = await refused(listed(caller(plane, shown)))
        assert refusal.code is grpc.StatusCode.UNAVAILABLE
    refusal = await refused(listed(caller(plane, authority.issue("nobody"))))
    assert (refusal.code, refusal.message) == (DENIED, "no rule gives the subject nobody a role")
    nameless = await refused(listed(caller(plane, authority.issue(organization="x"))))
    assert nameless.code is UNAUTHENTICATED
    # The other port asks for none; and what a header says is no certificate.
    shown = authority.issue("ci-7")
    other = caller(plane, shown, endpoint=plane.plane.endpoint)
    assert (await refused(listed(other))).code is UNAUTHENTICATED
    pem = shown[0].decode().replace("\n", "")
    for endpoint in (plane.plane.endpoint, plane.plane.client_endpoint):
        claimed = caller(plane, authority.issue("ci-7"), token=pem, endpoint=endpoint)
        assert (await refused(listed(claimed))).code is UNAUTHENTICATED
    await listed(caller(plane, authority.issue("", uri="spiffe://a/b")))


async def test_a_certificate_ends_also_on_a_connection_that_goes_on(
    plane: RunningControlPlane, authority: Authority, clock: HeldClock
) -> None:
    shown = caller(plane, authority.issue("", uri="spiffe://a/b"))
    await listed(shown)
    # It is good for a day by the machine's clock, which has not stood still until it was issued.
    clock.advance(2 * 86_400)
    refusal = await refused(listed(shown))
    assert (refusal.code, "has ended" in refusal.message) == (UNAUTHENTICATED, True)
