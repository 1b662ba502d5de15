"""What fedsched's guarantees are worth where it runs, and what to do about it.

Must not change anything. Reads settings, the database, certificates and disks.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final

from cryptography import x509

from federation.authenticators.configured import key_source, review_source
from federation.authenticators.keys import keys_of
from federation.database import Database, pending_migrations
from federation.model.errors import FederationError
from federation.model.printable import printable
from federation.model.releases import TOO_FAR, releases_apart
from federation.runtime.findings import Finding, bad, good, note, some
from federation.runtime.setting_values import Settings
from federation.runtime.settings import LoadedSettings
from federation.store.condition import DatabaseCondition, condition_of
from federation.store.engine import POOL_SIZE, SERVER_SETTINGS, create_engine, translated

# The oldest major version that is tried, and that still gets repairs.
TRIED_VERSION: Final = 15
# One more for the journal's wake-ups.
PLANE_CONNECTIONS: Final = POOL_SIZE + 1
FAR_SECONDS: Final = 0.02
CLOCK_SECONDS: Final = 1.0
EXPIRES_SOON: Final = timedelta(days=30)
LITTLE_SPACE: Final = 1 << 30
# Before a certificate ends.
REMEDIES: Final[Mapping[str, str]] = {
    "certificate": "issue another; agents go on when it is of the same authority",
    "authority": "every cluster joins again with another one: plan it in time",
    "client-ca": "add another authority to --client-ca, and issue callers certificates of it: "
    "those of one that has ended are refused",
    "oidc-ca": "get the issuer's next authority: after the end its keys cannot be fetched, and "
    "callers with JWTs are refused",
    "token-review-ca": "get the API server's next authority: after the end it cannot be asked, and "
    "callers with its tokens are refused",
}


async def examine(loaded: LoadedSettings, database: Database) -> list[Finding]:
    """Everything, the database first."""
    findings = [*await examine_database(loaded, database)]
    findings += certificate_findings(loaded.settings, datetime.now(UTC))
    findings += directory_findings(loaded.settings.data_dir, is_embedded=bool(database.embedded))
    findings += await asyncio.to_thread(list, voucher_findings(loaded.settings))
    return findings


def voucher_findings(settings: Settings) -> Iterator[Finding]:
    """Whether those can be reached who vouch for callers without a token of ours."""
    if settings.oidc_issuer:
        subject = "issuer"
        try:
            count = len(keys_of(key_source(settings)()))
            yield good(subject, f"{settings.oidc_issuer} signs JWTs with {count} keys")
        except FederationError as error:
            remedy = "callers with JWTs are refused without its keys: see --oidc-jwks, --oidc-ca"
            yield bad(subject, printable(error.message), remedy)
    if settings.token_review:
        subject = "reviews"
        try:
            review_source(settings)("not.a.token")
            yield good(subject, f"{settings.token_review} says whose tokens are")
        except FederationError as error:
            remedy = "let it create tokenreviews: bind it to the ClusterRole system:auth-delegator"
            yield bad(subject, printable(error.message), remedy)


async def examine_database(loaded: LoadedSettings, database: Database) -> Sequence[Finding]:
    try:
        missing = pending_migrations(database, loaded)
    except FederationError as error:
        return [bad("database", error.message, "start it, or name another one")]
    if missing:
        says = f"the schema is {len(missing)} migrations behind ({', '.join(missing)})"
        return [bad("database", says, "run `federation migrate`")]
    engine = create_engine(database.url)
    try:
        async with translated():
            condition = await condition_of(engine, SERVER_SETTINGS["application_name"])
    except FederationError as error:
        return [bad("database", error.message, "look at its log")]
    finally:
        await engine.dispose()
    return [
        *server_findings(condition),
        *durability_findings(condition),
        *fleet_findings(condition),
    ]


def server_findings(condition: DatabaseCondition) -> Iterator[Finding]:
    """The server, the way to it, its clock and its connections."""
    size, trip = condition.size >> 20, condition.trip_seconds * 1e3
    says = f"PostgreSQL {condition.version_text}, {size} MiB, answers in {trip:.1f} ms"
    if condition.is_standby:
        yield bad("database", f"{says}; it is a standby and only reads", "name the primary")
    elif condition.version // 10000 < TRIED_VERSION:
        remedy = f"use PostgreSQL {TRIED_VERSION} or newer"
        yield bad("database", f"{says}; older than any that is tried", remedy)
    elif condition.trip_seconds > FAR_SECONDS:
        remedy = "run control planes beside it: a decision asks it several times, one by one"
        yield note("database", says, remedy)
    else:
        yield good("database", says)
    if condition.is_pooled:
        says = "something between gives every transaction another server process: what is set for "
        says += "a session gets lost, and so do wake-ups"
        yield bad("connection", says, "connect directly, or pool sessions instead of transactions")
    elif condition.address and not (condition.is_encrypted or _is_here(condition.address)):
        remedy = "add ?ssl=require (or verify-full) to --database-url"
        yield note("connection", f"plain text to {condition.address}", remedy)
    else:
        is_local = not condition.address or _is_here(condition.address)
        yield good("connection", "on this machine" if is_local else "encrypted")
    yield _connections(condition)
    ahead = condition.clock_ahead_seconds
    if abs(ahead) > CLOCK_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        says = f"the database's clock is {abs(ahead):.1f} s {way} this machine's: tokens, leases "
        says += "and deadlines end by one, ages are told by the other"
        yield note("clock", says, "let both follow NTP")
    else:
        yield good(
            "clock", f"the database's and this machine's differ by {abs(ahead) * 1e3:.0f} ms"
        )


def _connections(condition: DatabaseCondition) -> Finding:
    planes = max(condition.planes, 1)
    left = condition.connections - condition.others_connections
    says = f"{left} for control planes; {planes} of them may open {planes * PLANE_CONNECTIONS}"
    remedy = "raise max_connections, or leave fewer to other programs"
    if left < planes * PLANE_CONNECTIONS:
        return bad("connections", says, remedy)
    if left < (planes + 1) * PLANE_CONNECTIONS:
        return note("connections", f"{says}, and one more has not enough", remedy)
    return good("connections", says)


def durability_findings(condition: DatabaseCondition) -> Iterator[Finding]:
    """What a decision that was acknowledged survives."""
    if not condition.has_fsync:
        says = "fsync is off: a crash of the machine may lose or damage everything"
        yield bad("durability", says, "set fsync = on")
    elif not condition.has_full_page_writes:
        says = "full_page_writes is off: a crash of the machine may damage tables"
        yield bad("durability", says, "set full_page_writes = on")
    elif not condition.synchronous_standbys:
        others = (
            f"{condition.standbys} standbys follow later" if condition.standbys else "no standby"
        )
        says = f"a decision is safe on one server's disk ({others}): it survives a crash of that "
        says += "server, and not its loss. After a failover to a standby that lacks it, nothing is "
        says += "promised in a cluster before its agent has reported again"
        yield note("durability", says, "name a standby in synchronous_standby_names")
    elif not condition.standbys_in_sync:
        says = f"writes wait for a standby of {condition.synchronous_standbys!r}, and none is there"
        yield bad("durability", says, "start one, or name one that runs")
    else:
        says = f"a decision is on {condition.standbys_in_sync + 1} servers before it is answered"
        yield good("durability", says)


def fleet_findings(condition: DatabaseCondition) -> Iterator[Finding]:
    planes, clusters = condition.planes, condition.clusters
    if planes == 1:
        says = (
            f"1 control plane runs, for {clusters} clusters: while it restarts nobody is answered"
        )
        yield note("fleet", says, "start a second one on the same database")
    else:
        yield good("fleet", f"{planes} control planes run, for {clusters} clusters")
    ours = version("fedsched")
    apart: dict[int, list[str]] = {}
    for agent in condition.agents:
        apart.setdefault(min(releases_apart(ours, agent.split(" ")[-1]), TOO_FAR), []).append(agent)
    remedy = "bring agents to the release of the control plane"
    if far := apart.get(TOO_FAR):
        says = f"agents are refused, two releases or more from {ours}: {some(far)}"
        yield bad("versions", says, remedy)
    if near := apart.get(1):
        yield note("versions", f"agents are one release from {ours}: {some(near)}", remedy)
    if condition.held:
        says = f"clusters wait to be accepted: {some(condition.held)}"
        yield note("joiners", says, "look at `fedctl get joiners`; accept or reject them")


def certificate_findings(settings: Settings, now: datetime) -> Iterator[Finding]:
    """How long those of the settings are good for."""
    if settings.tls_cert is None:
        says = "no TLS is set: it can be served on loopback alone"
        yield note("certificate", says, "set --tls-cert, --tls-key and --tls-ca")
    files = {
        "certificate": settings.tls_cert,
        "authority": settings.tls_ca,
        "client-ca": settings.client_ca,
        "oidc-ca": settings.oidc_ca,
        # A file of each pod, which matters only to who asks there.
        "token-review-ca": settings.token_review_ca if settings.token_review else None,
    }
    for name, path in files.items():
        if path is not None:
            yield _certificate(name, path, now)


def _certificate(name: str, path: Path, now: datetime) -> Finding:
    remedy = REMEDIES[name]
    try:
        certificates = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        return bad(name, f"{path} cannot be read: {error}", "name a PEM file")
    begins = max(each.not_valid_before_utc for each in certificates)
    ends = min(each.not_valid_after_utc for each in certificates)
    are_good = [
        each.not_valid_before_utc <= now < each.not_valid_after_utc for each in certificates
    ]
    first = f"the first of {len(certificates)} certificates in " if len(certificates) > 1 else ""
    says = f"{first}{path} ends on {ends:%Y-%m-%d}"
    # Of a chain each is needed; of authorities each is for those that it issued.
    if all(are_good) if name == "certificate" else any(are_good):
        if ends <= now:
            return note(name, f"{says}, which is past", remedy)
        if ends - now < EXPIRES_SOON:
            return note(name, f"{says}, in {(ends - now).days} days", remedy)
        return good(name, says)
    if begins > now:
        says = f"{path} is not good before {begins:%Y-%m-%d %H:%M} UTC"
        return bad(name, says, "name one that is good now, or set this machine's clock")
    return bad(name, says, remedy)


def directory_findings(directory: Path, *, is_embedded: bool) -> Iterator[Finding]:
    """The data directory: who may read its secrets, and whether there is room."""
    token = directory / "admin.token"
    try:
        mode = token.stat().st_mode
    except OSError:
        mode = 0
    if mode & 0o077:
        yield bad("secrets", f"{token} can be read by others", f"chmod 600 {token}")
    if not (is_embedded and directory.exists()):
        return
    free = shutil.disk_usage(directory).free
    says = f"{free >> 20} MiB are free in {directory}, where the embedded PostgreSQL is"
    if free < LITTLE_SPACE:
        yield bad("disk", says, "make room: nothing is written on a full disk")
    else:
        remedy = "for more than trying out, use a server of your own (--database-url)"
        yield note("disk", says, remedy)


def _is_here(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
