"""The verb ``doctor``: whether fedctl can ask its control planes, and if not, why and what to do.

Must not change anything, here or there.
"""

from __future__ import annotations

import socket
import ssl
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli.access import ROLE_NAMES
from federation.cli.connection import Connection, connection
from federation.cli.lists import ListColumn, ListedKind, Listing, listing_options, print_list
from federation.client.targets import endpoints_of
from federation.model.errors import FederationError, InvalidRequest
from federation.model.readable import counted

if TYPE_CHECKING:
    from federation.v1.resource_pb2 import Cluster

REFUSED: Final = 1
PROBE_SECONDS: Final = 5.0
DAY_SECONDS: Final = 86_400
SOON_DAYS: Final = 14


class State(StrEnum):
    """OK: as it should be. NOTE: good to know. BAD: fedctl does not work like this."""

    OK = "ok"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """A thing that was looked at, its state, and a remedy where one is needed."""

    subject: str
    state: State
    says: str
    remedy: str = ""


CHECKS: Final[ListedKind[DoctorCheck]] = ListedKind(
    word="check",
    named=lambda check: check.subject,
    document=asdict,
    can_change=False,
    columns=(
        ListColumn("CHECK", lambda check, _: check.subject),
        ListColumn("STATE", lambda check, _: check.state),
        ListColumn("SAYS", lambda check, _: check.says),
        ListColumn("DO", lambda check, _: check.remedy or "-", rare=True),
    ),
    prose=("SAYS", "DO"),
    empty="Nothing was looked at.",
)


@click.command(epilog="Example: fedctl doctor")
@listing_options(CHECKS)
def doctor(listing: Listing) -> None:
    """Check whether the control planes can be called.

    Where they cannot, it says why and what to do.

    Looks at the token's file, and at each endpoint's name, port, certificate and answer. Exits
    with 1 where something is bad.
    """
    checks = [*_checks(connection())]
    print_list(CHECKS, listing, checks)
    if any(check.state is State.BAD for check in checks):
        click.get_current_context().exit(REFUSED)


def _checks(to: Connection) -> Iterator[DoctorCheck]:
    yield from _token_checks(to)
    answered = None
    for endpoint in endpoints_of(to.endpoint):
        one = replace(to, endpoint=endpoint, began=time.monotonic())
        checks = [*_endpoint_checks(one)]
        yield from checks
        if all(check.state is not State.BAD for check in checks):
            answered = one
    if answered is not None:
        yield from _fleet_checks(answered)


def _token_checks(to: Connection) -> Iterator[DoctorCheck]:
    if to.client_cert is not None:
        return
    file = to.token_file
    try:
        mode, text = file.stat().st_mode, file.read_bytes()
    except OSError as error:
        says = f"{file} cannot be read: {error.strerror}"
        remedy = "name one that holds a token with --token-file, or keep one with `fedctl login`"
        yield DoctorCheck("token file", State.BAD, says, remedy)
        return
    if b"-----BEGIN" in text or len(text.split()) != 1:
        says = f"{file} holds no token, which is one word"
        remedy = "name the token's file: a key or a certificate is for --client-key, --ca"
        yield DoctorCheck("token file", State.BAD, says, remedy)
    elif mode & (stat.S_IRWXG | stat.S_IRWXO):
        says = f"{file} can be read by others on this machine"
        yield DoctorCheck("token file", State.NOTE, says, f"chmod 600 {file}")
    else:
        yield DoctorCheck("token file", State.OK, f"{file} holds a token")


def _endpoint_checks(to: Connection) -> Iterator[DoctorCheck]:
    """Name and port, certificate, answer; the first that is bad ends it."""
    host, _, port = to.endpoint.rpartition(":")
    subject = to.endpoint
    try:
        address = (host.strip("[]"), int(port))
        with socket.create_connection(address, timeout=PROBE_SECONDS) as probe:
            where = probe.getpeername()[0]
            certificate = None if to.insecure else _certificate_check(to, probe, address[0])
    except ValueError:
        says = f"{to.endpoint!r} is no HOST:PORT"
        yield DoctorCheck(subject, State.BAD, says, "check --endpoint")
        return
    except OSError as error:
        yield _unreachable(subject, error)
        return
    if certificate is not None:
        yield certificate
    yield _answer_check(to, where)


def _unreachable(subject: str, error: OSError) -> DoctorCheck:
    says = f"cannot be connected to: {error.strerror or error}"
    remedy = "check --endpoint, and what filters traffic between here and there"
    if isinstance(error, socket.gaierror):
        says = f"nobody knows the host's name ({error.strerror})"
        remedy = "check the host in --endpoint, or this machine's DNS"
    elif isinstance(error, ConnectionRefusedError):
        remedy = "start it there, or check the port: the API's is 7443 unless told otherwise"
    elif isinstance(error, TimeoutError):
        says = f"nobody answers within {PROBE_SECONDS:g} s"
    return DoctorCheck(subject, State.BAD, says, remedy)


def _certificate_check(to: Connection, probe: socket.socket, host: str) -> DoctorCheck:
    subject = f"{to.endpoint} TLS"
    try:
        context = ssl.create_default_context(cafile=to.ca)
        context.set_alpn_protocols(["h2"])
        if to.client_cert is not None:
            context.load_cert_chain(to.client_cert, to.client_key)
        with context.wrap_socket(probe, server_hostname=host) as wrapped:
            certificate: Any = wrapped.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        remedy = (
            "name its authority with --ca"
            if to.ca is None
            else f"--ca is {to.ca}: take the control plane's ca.pem"
        )
        says = f"its certificate is not trusted: {error.verify_message}"
        return DoctorCheck(subject, State.BAD, says, remedy)
    except (ssl.SSLError, TimeoutError, ConnectionError) as error:
        says = f"it does not speak TLS ({getattr(error, 'reason', None) or error})"
        remedy = "say --insecure where it is served without TLS, or check the port"
        return DoctorCheck(subject, State.BAD, says, remedy)
    except OSError as error:
        says = f"--ca, --client-cert or --client-key cannot be read: {error.strerror or error}"
        return DoctorCheck(subject, State.BAD, says, "name another file")
    seconds_left = ssl.cert_time_to_seconds(certificate["notAfter"]) - time.time()
    days = int(seconds_left / DAY_SECONDS)
    says = f"its certificate is trusted, and good for {days} days"
    if days < SOON_DAYS:
        return DoctorCheck(subject, State.NOTE, says, "renew it there")
    return DoctorCheck(subject, State.OK, says)


def _answer_check(to: Connection, where: str) -> DoctorCheck:
    began = time.monotonic()
    try:
        caller = to.call(lambda api: api.who_am_i())
    except InvalidRequest as error:
        says, remedy = str(error.violations[0]), "see above"
        return DoctorCheck(to.endpoint, State.BAD, says, remedy)
    except FederationError as error:
        says, remedy = error.message, "-"
        return DoctorCheck(to.endpoint, State.BAD, says, remedy)
    millis = 1000 * (time.monotonic() - began)
    role = ROLE_NAMES.get(caller.role, "?")
    says = f"answers at {where} in {millis:.0f} ms, to {caller.actor} as {role}"
    return DoctorCheck(to.endpoint, State.OK, says)


def _fleet_checks(to: Connection) -> Iterator[DoctorCheck]:
    try:
        clusters = to.call(lambda api: api.list_clusters())
    except FederationError as error:
        yield DoctorCheck("fleet", State.NOTE, error.message, "ask its admin")
        return
    yield _fleet_check(clusters)
    names_of_uid: dict[str, list[str]] = {}
    for cluster in clusters:
        names_of_uid.setdefault(cluster.metadata.uid, []).append(cluster.metadata.name)
    for uid, names in names_of_uid.items():
        if uid and len(names) > 1:
            says = f"{', '.join(names)} are one Kubernetes cluster: its capacity counts twice"
            remedy = f"end the agent of one name, and fedctl delete cluster {names[-1]}"
            yield DoctorCheck("fleet", State.BAD, says, remedy)


def _fleet_check(clusters: Sequence[Cluster]) -> DoctorCheck:
    subject = "fleet"
    if not clusters:
        remedy = "let one join: fedctl join-token create --cluster NAME"
        return DoctorCheck(subject, State.NOTE, "has no clusters", remedy)
    unready = [
        cluster.metadata.name
        for cluster in clusters
        if not any(it.type == "Ready" and it.status == "True" for it in cluster.status.conditions)
    ]
    if not unready:
        return DoctorCheck(subject, State.OK, f"{counted(len(clusters), 'cluster')}, all ready")
    named = ", ".join(unready[:3]) + (" and others" if len(unready) > 3 else "")
    are = "is" if len(unready) == 1 else "are"
    says = f"{len(unready)} of {counted(len(clusters), 'cluster')} {are} not ready: {named}"
    remedy = f"fedctl describe cluster {unready[0]}"
    return DoctorCheck(subject, State.NOTE, says, remedy)
