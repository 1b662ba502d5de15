"""What a server of the control plane serves, how its connections behave, and how many it has.

Must not start one.
"""

from __future__ import annotations

import resource
from typing import NamedTuple

import grpc

from federation.certificates import check_issued
from federation.codec.rights import FILES
from federation.model.errors import PreconditionFailed
from federation.rpc.calls_ahead import server_with_calls_ahead
from federation.rpc.decoding import MAX_REQUEST_BYTES
from federation.runtime.files import read_whole
from federation.runtime.served_certificates import ServedCertificate, renewed_credentials
from federation.runtime.settings import Settings
from federation.runtime.watched_files import Changed, FileWatch, WatchedFiles

SERVICES = tuple(service.full_name for file in FILES for service in file.services_by_name.values())
# The methods of the API by their paths.
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.services_by_name.values()
    for method in service.methods
}
# The calls of propagation controllers and agents, of which thousands may come at once. Who asks for
# health waits behind nobody.
OFTEN_CALLED = (
    "/grpc.health.v1.Health/Check",
    "/federation.v1.Agents/Connect",
    "/federation.v1.Estimates/EstimateReplicas",
    "/federation.v1.Scheduling/Schedule",
)
# That the web port, the database, simulations and other control planes need.
FILES_FOR_OTHERS = 1_000
NO_LIMIT = 2**31 - 1
GRPC_OPTIONS = (
    # Two servers on one port would share its calls by chance: the second is told instead.
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    # Of all headers of a call: JWTs with many claims are long.
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.absolute_max_metadata_size", 24 * 1024),
    # What nobody reads yet stays with who sends it; probing would let it send megabytes.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # A call that a busy server comes to late ends at its own deadline: gRPC would say after 30 s
    # that its caller cancelled it.
    ("grpc.server_max_unrequested_time_in_server", 3600),
    # Without a call; who has one again dials again by itself.
    ("grpc.max_connection_idle_ms", 600_000),
    # An agent whose network vanished is noticed although it sends nothing.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
)


def unstarted_server(
    interceptor: grpc.aio.ServerInterceptor, max_connections: int
) -> grpc.aio.Server:
    """Closes a connection too many before its handshake; those that are there go on."""
    most = min(max_connections, connections_left())
    options = (*GRPC_OPTIONS, ("grpc.max_allowed_incoming_connections", most))
    return server_with_calls_ahead(OFTEN_CALLED, interceptors=[interceptor], options=options)


def connections_left() -> int:
    """For how many there are files, beside everything else that opens some."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return NO_LIMIT
    return files - min(FILES_FOR_OTHERS, files // 2)


class TlsFiles(NamedTuple):
    """The newest content of the TLS files; the authority is the one that agents trust."""

    served: ServedCertificate
    authority: bytes


def tls_files(
    settings: Settings, watch: FileWatch, changed: Changed
) -> WatchedFiles[TlsFiles] | None:
    """None for plain text. Raises PreconditionFailed, also where files do not fit together."""
    cert, key, ca = settings.tls_cert, settings.tls_key, settings.tls_ca
    if cert is None or key is None or ca is None:
        return None

    def load() -> TlsFiles:
        check_issued(cert, key, ca)
        return TlsFiles(ServedCertificate.read(cert, key, None), read_whole(ca))

    return watch.watch("--tls-cert, --tls-key, --tls-ca", (cert, key, ca), load, changed)


def client_credentials(settings: Settings, watch: FileWatch) -> grpc.ServerCredentials:
    """Of the port for client certificates: without one of ``client_ca`` nobody comes in.

    Raises PreconditionFailed.
    """
    cert, key, ca = settings.tls_cert, settings.tls_key, settings.client_ca
    if cert is None or key is None or ca is None:
        raise PreconditionFailed("client certificates need TLS, and an authority of their own")
    files = watch.watch(
        "--client-ca", (ca, cert, key), lambda: ServedCertificate.read(cert, key, ca)
    )
    return renewed_credentials(lambda: files.value)
