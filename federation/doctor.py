"""What fedsched's guarantees are worth where it runs, and what to do about it.

Must not change anything. Reads settings, the database, certificates and disks.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final

from cryptography import x509

from federation.authenticators.configured import key_source, review_source
from federation.authenticators.keys import keys_of
from federation.certificate_ends import certificate_files
from federation.database import POOLED, UNPOOLED, Database, pending_migrations
from federation.embedded_postgres.location import database_folder
from federation.model.errors import FederationError
from federation.model.printable import printable
from federation.model.readable import plural
from federation.model.releases import TOO_FAR, releases_apart
from federation.rpc.limits import LIMITS
from federation.runtime.findings import Finding, Severity, bad, good, note, some
from federation.runtime.settings import LoadedSettings, Settings
from federation.services.fleet.held_back import HELD_SECONDS
from federation.store.condition import DatabaseCondition, condition_of
from federation.store.engine import POOL_SIZE, create_engine, translated
from federation.store.migrate import is_pooled

# Names its session in the server's lists.
PART: Final = "doctor"
# The oldest major version that is tried, and that still gets repairs.
TRIED_VERSION: Final = 15
# One more for the journal's wake-ups.
PLANE_CONNECTIONS: Final = POOL_SIZE + 1
FAR_SECONDS: Final = 0.02
CLOCK_SECONDS: Final = 1.0
EXPIRES_SOON: Final = timedelta(days=30)
LITTLE_SPACE: Final = 1 << 30
# Of synchronous_standby_names, where it says how many: "ANY 2 (a, b, c)", "2 (a, b, c)".
HOW_MANY: Final = re.compile(r"\s*(?:(?:any|first)\s+)?(\d+)\s*\(", re.IGNORECASE)
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
    findings += directory_findings(
        loaded.settings.data_dir, is_embedded=not loaded.settings.database_url
    )
    findings += await asyncio.to_thread(list, voucher_findings(loaded.settings))
    findings.append(limit_finding())
    return findings


def limit_finding() -> Finding:
    """Return the limits that callers share at each control plane."""
    fair = ", ".join(f"{limit.count} {limit.what}" for limit in LIMITS if limit.is_fair)
    own = ", ".join(f"{limit.count} {limit.what}" for limit in LIMITS if not limit.is_fair)
    says = f"at once {fair}, of which one caller has half of those that others leave free; {own}"
    return good("limits", says)


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
        if is_pooled(database.url):
            return [bad("connection", POOLED, UNPOOLED)]
    except FederationError as error:
        return [bad("database", error.message, "start it, or name another one")]
    if missing:
        says = f"the schema is {len(missing)} migrations behind ({', '.join(missing)})"
        return [bad("database", says, "run `federation migrate`")]
    engine = create_engine(database.url, PART)
    try:
        async with translated():
            condition = await condition_of(engine, PART)
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
    yield _connection(condition)
    yield _connections(condition)
    yield _transactions(condition)
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


def _connection(condition: DatabaseCondition) -> Finding:
    """The way to the server."""
    if condition.lost_settings:
        says = "something between loses what sessions of control planes set, and the server's own "
        says += f"is in force: {some(condition.lost_settings)}"
        remedy = f"connect directly, or set them by ALTER ROLE {printable(condition.role)} SET"
        return note("connection", says, remedy)
    if condition.address and not (condition.is_encrypted or _is_here(condition.address)):
        remedy = "add ?ssl=require (or verify-full) to --database-url"
        return note("connection", f"plain text to {condition.address}", remedy)
    is_local = not condition.address or _is_here(condition.address)
    return good("connection", "on this machine" if is_local else "encrypted")


def _transactions(condition: DatabaseCondition) -> Finding:
    """Tell whether one holds back what control planes see of each other's changes."""
    holder = condition.journal_holder
    if holder is None or (holder.seconds is not None and holder.seconds < HELD_SECONDS):
        return good("journal", "no transaction holds back what control planes see")
    says = f"one holds back what control planes see of each other's changes: {holder.text}"
    if holder.seconds is None:
        says = f"{holder.text} may hold back what control planes see; since when it is open "
        return note("journal", says + _unseen(condition), _to_see(condition))
    return bad("journal", says, holder.remedy)


def _connections(condition: DatabaseCondition) -> Finding:
    planes, hidden = max(condition.planes, 1), condition.hidden_connections
    left = condition.connections - condition.others_connections
    needed, with_one_more = planes * PLANE_CONNECTIONS, (planes + 1) * PLANE_CONNECTIONS
    at_least = "at least " if hidden else ""
    says = f"{at_least}{left} for control planes; {planes} of them may open {needed}"
    if left < needed <= left + hidden:
        says += f". Whether {hidden} others are workers of the server, which take none, "
        return note("connections", says + _unseen(condition), _to_see(condition))
    remedy = "raise max_connections, or leave fewer to other programs"
    if left < needed:
        return bad("connections", says, remedy)
    if left < with_one_more:
        lacks = "may lack some" if left + hidden >= with_one_more else "has not enough"
        return note("connections", f"{says}, and one more {lacks}", remedy)
    return good("connections", says)


def durability_findings(condition: DatabaseCondition) -> Iterator[Finding]:
    """What a decision that was acknowledged survives."""
    commits = _commits(condition)
    yield commits
    if not condition.has_fsync:
        says = "fsync is off: a crash of the machine may lose or damage everything"
        yield bad("durability", says, "set fsync = on")
    elif not condition.has_full_page_writes:
        says = "full_page_writes is off: a crash of the machine may damage tables"
        yield bad("durability", says, "set full_page_writes = on")
    elif commits.severity is not Severity.BAD:
        yield _copies(condition)


def _commits(condition: DatabaseCondition) -> Finding:
    """Whether a decision is answered before it is where it should be."""
    value = condition.synchronous_commit
    says = f"synchronous_commit is {value} where control planes write"
    source = f"{says} (source: {condition.commit_source})"
    # Every session asks for "on": what else is in force came from elsewhere.
    remedy = "connect directly: something between loses what sessions set; or "
    remedy += f"ALTER ROLE {printable(condition.role)} SET synchronous_commit = on"
    if value == "off":
        says = f"{source}: decisions are answered before they are on a disk, and a crash of the "
        return bad("commits", f"{says}server may lose those of the last moment", remedy)
    if value == "local" and condition.synchronous_standbys:
        says = f"{source}: decisions are answered before a standby has them, and a failover may "
        return bad("commits", f"{says}lose those of the last moment", remedy)
    return good("commits", says)


def _copies(condition: DatabaseCondition) -> Finding:
    """On how many servers a decision is before it is answered."""
    names, standbys = condition.synchronous_standbys, condition.standbys
    if not names:
        others = f"{standbys} standbys follow later" if standbys else "no standby"
        says = f"a decision is safe on one server's disk ({others}): it survives a crash of that "
        says += "server, and not its loss. After a failover to a standby that lacks it, nothing is "
        says += "promised in a cluster before its agent has reported again"
        return note("durability", says, "name a standby in synchronous_standby_names")
    needed = _waited_for(names)
    says = f"writes wait for {needed} of the standbys {names!r}"
    if condition.sees_standbys and condition.standbys_in_sync >= needed:
        return good("durability", f"a decision is on {needed + 1} servers before it is answered")
    if not condition.sees_standbys and standbys >= needed:
        says += f"; whether the {standbys} that follow are of these {_unseen(condition)}"
        return note("durability", says, _to_see(condition))
    # A role that sees no more sees that they are fewer.
    there = str(condition.standbys_in_sync) if condition.sees_standbys else f"at most {standbys}"
    says += f", and {there} of them follow at this moment"
    return bad("durability", says, "start them, or name those that run")


def _waited_for(names: str) -> int:
    """How many standbys a commit waits for, of a synchronous_standby_names that is not empty."""
    how_many = HOW_MANY.match(names)
    return int(how_many[1]) if how_many else 1


def _unseen(condition: DatabaseCondition) -> str:
    return f"cannot be seen by the role {printable(condition.role)}"


def _to_see(condition: DatabaseCondition) -> str:
    role = printable(condition.role)
    return f"GRANT pg_read_all_stats TO {role}, or pg_monitor, which has it; then look again"


def fleet_findings(condition: DatabaseCondition) -> Iterator[Finding]:
    planes, clusters = condition.planes, condition.clusters
    if planes == 1:
        served = plural(clusters, "cluster")
        says = f"1 control plane runs, for {served}: while it restarts nobody is answered"
        yield note("fleet", says, "start a second one on the same database")
    else:
        yield good("fleet", f"{planes} control planes run, for {plural(clusters, 'cluster')}")
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
    yield from _duties(condition.failing_duties)


def _duties(failing: Sequence[str]) -> Iterator[Finding]:
    """Return a finding for each background duty whose last round failed."""
    remedy = "look into the log of the control plane that has the duty; docs/runbooks has a page"
    for duty in failing:
        yield bad("duties", f"background work fails: {printable(duty)}", remedy)
    if not failing:
        yield good("duties", "all background work succeeds")


def certificate_findings(settings: Settings, now: datetime) -> Iterator[Finding]:
    """How long those of the settings are good for."""
    if settings.tls_cert is None:
        says = "no TLS is set: it can be served on loopback alone"
        yield note("certificate", says, "set --tls-cert, --tls-key and --tls-ca")
    for name, path in certificate_files(settings).items():
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
    try:
        place = database_folder(directory / "postgres")
        free = shutil.disk_usage(place).free
    except (OSError, FederationError) as error:
        yield bad("disk", f"the embedded database cannot be found: {error}", "put its folder back")
        return
    if not place.is_relative_to(directory.resolve()):
        says = f"the database is in {place}: a backup of {directory} does not hold it"
        remedy = "use pg_dump; a directory that others can enter (mode 711) gets it beside itself"
        yield note("backup", says, remedy)
    says = f"{free >> 20} MiB are free in {place}, where the embedded PostgreSQL is"
    if free < LITTLE_SPACE:
        yield bad("disk", says, "make room: nothing is written on a full disk")
    else:
        remedy = "for more than trying out, use a server of your own (--database-url)"
        yield note("disk", says, remedy)


def _is_here(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
