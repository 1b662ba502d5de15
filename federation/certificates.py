"""A small certificate authority and a server certificate, for trying fedsched out over TLS.

Must not replace an authority that exists: agents have pinned it.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from federation.model.errors import InvalidRequest, PreconditionFailed, Violation
from federation.runtime.files import make_private_directory, write_whole

CA_DAYS = 3650
SERVER_DAYS = 397  # Apple's clients refuse longer ones.
CLOCK_SKEW = timedelta(hours=1)
MAX_COMMON_NAME = 64
NO_OTHER_USE = {
    "content_commitment": False,
    "key_encipherment": False,
    "data_encipherment": False,
    "key_agreement": False,
    "encipher_only": False,
    "decipher_only": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """Where the certificates are; keys have mode 0600."""

    ca: Path
    ca_key: Path
    cert: Path
    key: Path

    @classmethod
    def within(cls, directory: Path) -> CertificateFiles:
        return cls(
            ca=directory / "ca.pem",
            ca_key=directory / "ca.key",
            cert=directory / "server.pem",
            key=directory / "server.key",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(
    directory: Path, hosts: Sequence[str], *, now: datetime | None = None
) -> CertificateFiles:
    """Make a CA unless ``directory`` has one, and issue a server certificate for ``hosts``.

    ``hosts`` are host names and IP addresses, and those of the certificate that is there already
    stay; ``now`` is timezone-aware (None: by our clock).
    Raises InvalidRequest for a host that is neither, PreconditionFailed when the directory holds
    half an authority or cannot be written to.
    """
    names = _alternative_names(hosts)
    now = now or datetime.now(UTC)
    files = CertificateFiles.within(directory)
    make_private_directory(directory)
    authority = _read_authority(files) or _make_authority(files, now)
    names += [name for name in _names_before(files) if name not in names]
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _server_certificate(authority, key, names, now)
    write_whole(files.key, _key_pem(key), mode=0o600)
    write_whole(files.cert, _pem(certificate), mode=0o644)
    return files


def check_issued(cert: Path, key: Path, ca: Path) -> None:
    """Raises PreconditionFailed unless who trusts ``ca`` trusts a server with this certificate.

    It is tried: a client and a server shake hands in memory.
    """
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False  # Which host is asked for is not known here.
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        server_context.load_cert_chain(cert, key, password="")
        client_context.load_verify_locations(ca)
        server = server_context.wrap_bio(to_server, to_client, server_side=True)
        client = client_context.wrap_bio(to_client, to_server)
        for side in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise PreconditionFailed(
            f"{ca} (--tls-ca) is not the authority of {cert} (--tls-cert), so that no agent and no "
            f"client could connect: {error.verify_message}. Intermediate certificates go behind "
            f"the server's in {cert}"
        ) from error
    except (OSError, ValueError) as error:
        raise PreconditionFailed(
            f"{cert} with the key {key} under {ca} cannot be used: {error}"
        ) from error


def ca_fingerprint(pem: bytes) -> str:
    """SHA-256 in hex of the first certificate in a PEM file, over its DER form."""
    return hashlib.sha256(first_certificate(pem)).hexdigest()


def first_certificate(pem: bytes) -> bytes:
    """DER of the first certificate in a PEM file. Raises InvalidRequest when there is none."""
    begin, end = pem.find(b"-----BEGIN CERTIFICATE-----"), b"-----END CERTIFICATE-----"
    stop = pem.find(end, begin)
    if begin < 0 or stop < 0:
        raise InvalidRequest.of("", "holds no PEM certificate")
    try:
        der = ssl.PEM_cert_to_DER_cert(pem[begin : stop + len(end)].decode("ascii"))
        x509.load_der_x509_certificate(der)
    except ValueError as error:
        raise InvalidRequest.of("", "holds a PEM certificate that cannot be read") from error
    return der


def _alternative_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    violations = []
    for number, host in enumerate(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if host and host.isascii() and all(c.isalnum() or c in "-.*" for c in host):
                names.append(x509.DNSName(host))
            else:
                rule = f"must be a host name or an IP address; it is {host!r}"
                violations.append(Violation(field=f"hosts[{number}]", rule=rule))
    if not hosts:
        violations.append(Violation(field="hosts", rule="must name at least one host"))
    if violations:
        raise InvalidRequest(violations)
    return names


def _names_before(files: CertificateFiles) -> list[x509.GeneralName]:
    """What the server certificate that is there is for; nothing where there is none to read."""
    try:
        before = x509.load_pem_x509_certificate(files.cert.read_bytes())
        found = before.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return []
    return [name for name in found if isinstance(name, x509.DNSName | x509.IPAddress)]


def _read_authority(files: CertificateFiles) -> Authority | None:
    present = [path for path in (files.ca, files.ca_key) if path.exists()]
    if not present:
        return None
    if len(present) == 1:
        missing = files.ca_key if present == [files.ca] else files.ca
        raise PreconditionFailed(
            f"there is {present[0]} but no {missing}: restore it, or move both"
        )
    try:
        certificate = x509.load_pem_x509_certificate(files.ca.read_bytes())
        key = serialization.load_pem_private_key(files.ca_key.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise PreconditionFailed(
            f"{files.ca} and {files.ca_key} cannot be read: {error}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or (
        key.public_key() != certificate.public_key()
    ):
        raise PreconditionFailed(f"{files.ca_key} is not the key of {files.ca}")
    return Authority(certificate=certificate, key=key)


def _make_authority(files: CertificateFiles, now: datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    public_key = key.public_key()
    name = _name("fedsched CA")
    certificate = (
        _builder(name, name, public_key, now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=False, key_cert_sign=True, crl_sign=True, **NO_OTHER_USE
            ),
            critical=True,
        )
        .sign(key, hashes.SHA256())
    )
    write_whole(files.ca_key, _key_pem(key), mode=0o600)
    write_whole(files.ca, _pem(certificate), mode=0o644)
    return Authority(certificate=certificate, key=key)


def _server_certificate(
    authority: Authority,
    key: ec.EllipticCurvePrivateKey,
    names: Sequence[x509.GeneralName],
    now: datetime,
) -> x509.Certificate:
    issuer = authority.certificate
    issuer_key = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(_name(str(names[0].value)), issuer.subject, key.public_key(), now, SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=False, crl_sign=False, **NO_OTHER_USE
            ),
            critical=True,
        )
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    attribute = x509.NameAttribute(NameOID.COMMON_NAME, common_name[:MAX_COMMON_NAME])
    return x509.Name([attribute])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
