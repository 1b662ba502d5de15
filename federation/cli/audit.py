"""Verbs about the audit: list, verify, export.

Must not trust what the control plane says of the chain: it is reckoned anew here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import click

from federation.cli.audit_chain import ALTERED, linked
from federation.cli.audit_export import export
from federation.cli.connection import connection
from federation.cli.kinds import GetKind, Request, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.times import time_of
from federation.client import Client
from federation.codec.audit import head_from_message, record_from_message
from federation.model.audit import AuditHead
from federation.model.errors import PreconditionFailed
from federation.runtime.terminal import say
from federation.v1 import access_pb2

FORGOTTEN = "AUDIT_FORGOTTEN"
# SEAL:HASH, or the whole line that ``verify`` prints.
_EXPECTED: Final = re.compile(r"(?:seal )?([0-9]{1,18})(?::| hash )([0-9a-f]{64})", re.ASCII)
OBJECTS_SHOWN = 3
VERIFY_EPILOG = """Examples:

\b
fedctl audit verify
fedctl audit verify --expect "$(cat kept-elsewhere)"
"""


@click.group(epilog="Example: fedctl audit list")
def audit() -> None:
    """Show who changed what, and verify the records."""


audit.add_command(export)


def objects_text(record: access_pb2.AuditRecord) -> str:
    shown = ", ".join(record.objects[:OBJECTS_SHOWN]) or "-"
    more = len(record.objects) - OBJECTS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def result_text(record: access_pb2.AuditRecord) -> str:
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
        ListColumn("OBJECTS", lambda each, _: objects_text(each)),
        ListColumn("RESULT", lambda each, _: result_text(each)),
        ListColumn("REASON", lambda each, _: each.reason or "-"),
    ),
    least=("REASON", "FROM", "TIME"),
    last=("OBJECTS",),
    prose=("WHO", "OBJECTS", "RESULT", "REASON"),
    empty="Nothing was changed or refused.",
    is_record=True,
)


def audit_request(
    since: str | None, until: str | None = None, credential: str = ""
) -> access_pb2.ListAuditRequest:
    """Records between two times that people have written. Raises InvalidRequest."""
    now = time.time()
    return access_pb2.ListAuditRequest(
        since=time_of(since, "--since", now) if since else None,
        until=time_of(until, "--until", now) if until else None,
        credential_id=credential,
    )


async def _fetch_audit(api: Client, request: Request) -> Sequence[access_pb2.AuditRecord]:
    options = request.options
    asked = audit_request(options["since"], options["until"], options["credential"])
    records = await api.list_audit(asked, limit=options["limit"])
    within = f"{request.namespace}/"
    return [
        record
        for record in records
        if not request.namespace or any(name.startswith(within) for name in record.objects)
    ]


GET_AUDIT: Final = GetKind(
    plural="audit",
    listed=RECORDS,
    words="Changes and refusals, the newest first, or the records with these numbers.",
    fetch=_fetch_audit,
    options=[
        click.option("--since", default="", help="From then on: 24h, 7d, 2026-03-01T12:00:00Z."),
        click.option("--until", default="", help="Before then."),
        click.option(
            "--credential", default="", help="Only what was called with it: the id of a token."
        ),
        click.option(
            "--limit",
            type=click.IntRange(1, 100_000),
            default=100,
            show_default=True,
            help="No more than so many, of which -n and names choose.",
        ),
    ],
    metavar="RECORD",
    has_namespaces=True,
    examples=[
        "fedctl get audit --since 24h",
        "fedctl get audit --credential tok-3f1c9a7e5b2d4680 -o json",
    ],
)
audit.add_command(kind_command(GET_AUDIT, "audit list"))


def _expected(_: click.Context, __: click.Parameter, value: str | None) -> AuditHead | None:
    if value is None:
        return None
    found = _EXPECTED.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter("must be SEAL:HASH, or a line that verify has printed")
    return AuditHead(seal=int(found[1]), hash=bytes.fromhex(found[2]))


@audit.command(epilog=VERIFY_EPILOG)
@click.option(
    "--expect",
    "expected",
    metavar="SEAL:HASH",
    callback=_expected,
    help="Fail unless the chain has this hash at this seal; a line that an earlier run printed.",
)
def verify(expected: AuditHead | None) -> None:
    """Reckon the chain of hashes anew; exits with 1 where a record was altered or removed.

    Keep the last line that it prints where nobody can write who can write the database, and give it
    to later runs as --expect. Who rewrites the whole chain, cuts off its end or restores an old one
    is found by that alone.
    """
    verified = connection().call(partial(_verified, expected=expected))
    first = verified.first
    say(f"{verified.head.seal - first} records are as they were sealed, from seal {first + 1} on.")
    if expected is not None and expected.seal >= first:
        say(f"seal {expected.seal} has the hash that was expected.")
    say(f"seal {verified.head.seal} hash {verified.head.hash.hex()}")
    if expected is not None and expected.seal < first:
        raise PreconditionFailed(
            f"Seal {expected.seal} cannot be checked any more: records up to seal {first} were "
            "forgotten, as they are after the days that the audit is kept. Expect a later one.",
            reason=FORGOTTEN,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedChain:
    """Nothing between the seals ``first`` and that of the head was altered."""

    first: int
    head: AuditHead


async def _verified(api: Client, *, expected: AuditHead | None) -> VerifiedChain:
    """Raises PreconditionFailed where the chain is broken, or is another than is expected."""
    page = await api.get_audit_chain()
    head = head_from_message(page.head)
    reached = AuditHead(seal=head.pruned_seal, hash=head.pruned_hash)
    _compare(reached, expected)
    while page.records and reached.seal < head.seal:
        for message in page.records:
            if reached.seal < head.seal:
                reached = linked(reached, record_from_message(message))
                _compare(reached, expected)
        page = await api.get_audit_chain(reached.seal)
    if (reached.seal, reached.hash) != (head.seal, head.hash):
        raise PreconditionFailed(
            f"The audit was altered: it ends at seal {reached.seal}, and its head is {head.seal}.",
            reason=ALTERED,
        )
    if expected is not None and expected.seal > head.seal:
        raise PreconditionFailed(
            f"The audit was cut off or put back to an earlier state: it ends at seal {head.seal}, "
            f"and seal {expected.seal} was expected.",
            reason=ALTERED,
        )
    return VerifiedChain(first=head.pruned_seal, head=head)


def _compare(reached: AuditHead, expected: AuditHead | None) -> None:
    if expected is None or expected.seal != reached.seal or expected.hash == reached.hash:
        return
    raise PreconditionFailed(
        f"The audit was rewritten: seal {reached.seal} has the hash {reached.hash.hex()}, and "
        f"{expected.hash.hex()} was expected.",
        reason=ALTERED,
    )
