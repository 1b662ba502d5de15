"""Callers by client certificates, which the TLS handshake has verified.

Must not be given one that was not: anybody can show the certificate of another.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

from federation.authenticators.subjects import KnownBearers, subject_of
from federation.model.errors import Unauthenticated
from federation.model.role_rules import RoleRules, SubjectClaims, Voucher
from federation.services.ports import Clock
from federation.services.values import Principal


class CertificateAuthenticator:
    """Implements ``identity.CertificateReader``."""

    def __init__(self, rules: RoleRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._known = KnownBearers(clock)

    def identify(self, pem: bytes) -> Principal:
        """Raises Unauthenticated, also once it has ended, and PermissionRefused."""
        text = pem.decode("ascii", "replace")
        if (known := self._known.find(text)) is not None:
            return known
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            claims = claims_of(certificate)
        except ValueError as error:
            raise Unauthenticated("The client certificate cannot be read.") from error
        ends_at = certificate.not_valid_after_utc.timestamp()
        if self._clock.now() >= ends_at:
            raise Unauthenticated("The client certificate has ended: connect with a newer one.")
        names = [*claims["commonName"], *claims["uri"]]
        name = names[0] if names else ""
        principal = subject_of(self._rules, Voucher.CERTIFICATE, name, claims)
        self._known.remember(text, principal, ends_at)
        return principal


def claims_of(certificate: x509.Certificate) -> SubjectClaims:
    """What it says of its subject. Raises ValueError."""

    def attributes(oid: x509.ObjectIdentifier) -> list[str]:
        return [str(each.value) for each in certificate.subject.get_attributes_for_oid(oid)]

    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        others: x509.SubjectAlternativeName | None = extension.value
    except x509.ExtensionNotFound:
        others = None
    return {
        "commonName": attributes(NameOID.COMMON_NAME),
        "organization": attributes(NameOID.ORGANIZATION_NAME),
        "dnsName": others.get_values_for_type(x509.DNSName) if others else [],
        "uri": others.get_values_for_type(x509.UniformResourceIdentifier) if others else [],
    }
