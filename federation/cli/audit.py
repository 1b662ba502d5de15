"""Verbs about the audit: list, verify.

Must not trust what the control plane says of the chain: it is reckoned anew here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

import click

from federation.cli.connection import connection
from federation.cli.following import show_list
from federation.cli.kinds import ListColumn, ListedKind, Listing, listing_options
from federation.cli.times import time_of
from federation.client import Client
from federation.codec.audit import head_from_message, record_from_message
from federation.model.audit import AuditHead, AuditRecord, chained
from federation.model.errors import PreconditionFailed
from federation.runtime.terminal import say
from federation.v1 import access_pb2

ALTERED = "AUDIT_ALTERED"
OBJECTS_SHOWN = 3
LIST_EPILOG = """Examples:

\b
fedctl audit list --since 24h
fedctl audit list --credential tok-3f1c9a7e5b2d4680 -o json
"""


@click.group(epilog="Example: fedctl audit list")
def audit() -> None:
    """See who changed what and who was refused, and verify that no record was altered."""


def _objects(record: access_pb2.AuditRecord) -> str:
    shown = ", ".join(record.objects[:OBJECTS_SHOWN]) or "-"
    more = len(record.objects) - OBJECTS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _result(record: access_pb2.AuditRecord) -> str:
    """A column for what is rarely there would not fit where it matters most."""
    more = f" and {record.unrecorded} unrecorded" if record.unrecorded else ""
    return f"{record.result}{more}"


RECORDS: Final[ListedKind[access_pb2.AuditRecord]] = ListedKind(
    word="record",
    named=lambda each: str(each.id),
    columns=(
        ListColumn("TIME", lambda each, _: each.time.ToDatetime().strftime("%Y-%m-%d %H:%M:%S")),
        ListColumn("WHO", lambda each, _: each.actor),
        ListColumn("FROM", lambda each, _: each.address),
        ListColumn("METHOD", lambda each, _: each.method),
        ListColumn("OBJECTS", lambda each, _: _objects(each)),
        ListColumn("RESULT", lambda each, _: _result(each)),
        ListColumn("REASON", lambda each, _: each.reason or "-"),
    ),
    least=("REASON", "FROM", "TIME"),
    last=("OBJECTS",),
    prose=("WHO", "OBJECTS", "RESULT", "REASON"),
    empty="Nothing was changed or refused.",
)


@audit.command("list", epilog=LIST_EPILOG)
@click.option("--since", default="", help="From then on: 24h, 7d, 2026-03-01T12:00:00Z.")
@click.option("--until", default="", help="Before then.")
@click.option("--credential", default="", help="Only what was called with it: the id of a token.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True)
@listing_options(RECORDS)
def list_audit(since: str, until: str, credential: str, limit: int, listing: Listing) -> None:
    """Changes and refusals, the newest first."""
    now = time.time()
    request = access_pb2.ListAuditRequest(
        since=time_of(since, "--since", now) if since else None,
        until=time_of(until, "--until", now) if until else None,
        credential_id=credential,
    )
    show_list(RECORDS, listing, lambda api: api.list_audit(request, limit=limit))


@audit.command(epilog="Example: fedctl audit verify")
def verify() -> None:
    """Reckon the chain of hashes anew; exits with 1 where a record was altered or removed.

    Keep the line that it prints: where a later run has another hash at that seal, somebody has
    written the chain anew.
    """
    verified = connection().call(_verified)
    first = verified.first
    say(f"{verified.head.seal - first} records are as they were sealed, from seal {first + 1} on.")
    say(f"seal {verified.head.seal} hash {verified.head.hash.hex()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedChain:
    """Nothing between the seals ``first`` and that of the head was altered."""

    first: int
    head: AuditHead


async def _verified(api: Client) -> VerifiedChain:
    """Raises PreconditionFailed where the chain is broken."""
    page = await api.get_audit_chain()
    head = head_from_message(page.head)
    reached = AuditHead(seal=head.pruned_seal, hash=head.pruned_hash)
    while page.records and reached.seal < head.seal:
        for message in page.records:
            if reached.seal < head.seal:
                reached = _next(reached, record_from_message(message))
        page = await api.get_audit_chain(reached.seal)
    if (reached.seal, reached.hash) != (head.seal, head.hash):
        raise PreconditionFailed(
            f"The audit was altered: it ends at seal {reached.seal}, and its head is {head.seal}.",
            reason=ALTERED,
        )
    return VerifiedChain(first=head.pruned_seal, head=head)


def _next(reached: AuditHead, record: AuditRecord) -> AuditHead:
    if record.seal != reached.seal + 1:
        missing = reached.seal + 1
        raise PreconditionFailed(f"The audit was altered: {missing} is missing.", reason=ALTERED)
    if chained(reached.hash, record) != record.hash:
        raise PreconditionFailed(
            f"The audit was altered: the record with seal {record.seal} (id {record.id}) is not "
            "what was sealed.",
            reason=ALTERED,
        )
    return replace(reached, seal=record.seal, hash=record.hash)
