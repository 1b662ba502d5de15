"""The certificate that a gRPC server shows, and the authority of its clients, from watched files.

Must not decide which files these are.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import grpc

from federation.model.errors import PreconditionFailed
from federation.runtime.files import read_whole


class ServedCertificate(NamedTuple):
    """PEM contents: a server's key, its certificate chain, and the authority of its clients."""

    key: bytes
    certificate: bytes
    client_authority: bytes | None = None

    @classmethod
    def read(cls, certificate: Path, key: Path, client_authority: Path | None) -> ServedCertificate:
        """Raises PreconditionFailed where a file cannot be used."""
        served = cls(
            key=read_whole(key),
            certificate=read_whole(certificate),
            client_authority=None if client_authority is None else read_whole(client_authority),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ValueError) as error:
            text = f"{certificate} with the key {key} cannot be used: {error}"
            raise PreconditionFailed(text) from error
        try:
            if client_authority is not None:
                context.load_verify_locations(client_authority)
        except (OSError, ValueError) as error:
            text = f"{client_authority} cannot be used as an authority of clients: {error}"
            raise PreconditionFailed(text) from error
        return served

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """A configuration for one use: gRPC takes what is in it."""
        return grpc.ssl_server_certificate_configuration(
            [(self.key, self.certificate)], root_certificates=self.client_authority
        )


def renewed_credentials(newest: Callable[[], ServedCertificate]) -> grpc.ServerCredentials:
    """Credentials for one port: each new connection is shown the newest certificate.

    With an authority of clients every client needs a certificate of it. ``newest`` is called in
    threads of gRPC.
    """
    shown = newest()

    def changed() -> grpc.ServerCertificateConfiguration | None:
        # gRPC asks at each new connection; None: go on with the last one.
        nonlocal shown
        served = newest()
        if served is shown:
            return None
        shown = served
        return served.configuration()

    return grpc.dynamic_ssl_server_credentials(
        shown.configuration(),
        changed,  # type: ignore[arg-type]  # gRPC documents None, its stubs leave it out
        require_client_authentication=shown.client_authority is not None,
    )
