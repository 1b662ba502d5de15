"""Files of certificates that the settings name, and when the certificates in them end.

Must not judge how soon is too soon: doctor and the alerts do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cryptography import x509

from federation.runtime.settings import Settings


def certificate_files(settings: Settings) -> Mapping[str, Path]:
    """Return the files by what they are for."""
    files = {
        "certificate": settings.tls_cert,
        "authority": settings.tls_ca,
        "client-ca": settings.client_ca,
        "oidc-ca": settings.oidc_ca,
        # A file of each pod, which matters only to who asks there.
        "token-review-ca": settings.token_review_ca if settings.token_review else None,
    }
    return {name: path for name, path in files.items() if path is not None}


def ends_of(files: Mapping[str, Path]) -> Mapping[str, float]:
    """Return when the first certificate of each file ends, in Unix seconds.

    A file that cannot be read has no end: the program goes on with what it read before.
    """
    ends = {}
    for name, path in files.items():
        try:
            certificates = x509.load_pem_x509_certificates(path.read_bytes())
        except (OSError, ValueError):
            continue
        ends[name] = min(each.not_valid_after_utc.timestamp() for each in certificates)
    return ends
