"""Verbs about the audit: list, verify, export.

Must not trust what the control plane says of the chain of hashes: it is computed again.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import click

from federation.cli.arguments import time_of
from federation.cli.connection import connection
from federation.cli.kinds import GetKind, Request, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.codec.audit import head_from_message, record_from_message
from federation.codec.written import document_from_message
from federation.model.audit import AuditHead, AuditRecord, chained
from federation.model.errors import DeadlineMissed, InvalidRequest, PreconditionFailed, Unavailable
from federation.runtime.terminal import json_text, say, say_lines
from federation.v1 import access_pb2

if TYPE_CHECKING:
    from federation.client import Client

ALTERED = "AUDIT_ALTERED"


def linked(reached: AuditHead, record: AuditRecord) -> AuditHead:
    """The chain up to a record that is next in it. Raises PreconditionFailed for any other one."""
    if record.seal != reached.seal + 1:
        missing = reached.seal + 1
        raise PreconditionFailed(f"The audit was altered: {missing} is missing.", reason=ALTERED)
    if chained(reached.hash, record) != record.hash:
        raise PreconditionFailed(
            f"The audit was altered: a record of the batch up to seal {record.seal} (id "
            f"{record.id}) is not what was sealed.",
            reason=ALTERED,
        )
    return replace(reached, seal=record.seal, hash=record.hash)


POLL_SECONDS: Final = 2.0
# No record is as large.
LONGEST_LINE_BYTES: Final = 1 << 20
BEGIN: Final = b'{"id": '
EPILOG = """Examples:

\b
fedctl audit export > audit.jsonl
fedctl audit export --watch --file /var/log/fedsched/audit.jsonl
"""

Records = Sequence[access_pb2.AuditRecord]


@click.command(epilog=EPILOG)
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Append to it, and go on after its last record; else all go to standard output.",
)
@click.option("-w", "--watch", is_flag=True, help="Go on with what is recorded from now on.")
def export(path: Path | None, watch: bool) -> None:
    """Records as JSON, one a line, in the order in which they are sealed, the oldest first.

    Each is checked against the one before it. Where the audit does not go on where the file ends
    (a record was altered, or the database put back), nothing is written, and it exits with 1.
    """
    try:
        if path is None:
            for records in connection().iterate(partial(_records, last=None, watch=watch)):
                say_lines("\n".join(map(_line, records)))
            return
        with _appended(path) as file:
            last = _last_of(file, path)
            for records in connection().iterate(partial(_records, last=last, watch=watch)):
                file.write("".join(f"{_line(record)}\n" for record in records).encode())
                file.flush()
                os.fsync(file.fileno())
    except KeyboardInterrupt:
        return


def _line(record: access_pb2.AuditRecord) -> str:
    return json_text(document_from_message(record))


async def _records(api: Client, *, last: AuditHead | None, watch: bool) -> AsyncGenerator[Records]:
    """Yield the records after the ``last`` one, in parts; None: all that are stored."""
    # Lists of the audit do not wait for it.
    import asyncio  # noqa: PLC0415 - see above

    while True:
        try:
            page = await api.get_audit_chain(last.seal if last else 0)
        except (Unavailable, DeadlineMissed) as error:
            if not watch:
                raise
            say(f"error: {error.message}; asked again in {POLL_SECONDS:g} s", err=True)
            await asyncio.sleep(POLL_SECONDS)
            continue
        head = head_from_message(page.head)
        last = _begun(last, head)
        records = [record for record in page.records if record.seal <= head.seal]
        for record in records:
            last = linked(last, record_from_message(record))
        if records:
            yield records
        elif last.seal < head.seal:
            raise _ended(last, head)
        elif watch:
            await asyncio.sleep(POLL_SECONDS)
        else:
            return


def _ended(reached: AuditHead, head: AuditHead) -> PreconditionFailed:
    """Return a refusal of a chain that does not lead to its head."""
    says = f"The audit was altered: it ends at seal {reached.seal}, and its head is {head.seal}."
    return PreconditionFailed(says, reason=ALTERED)


def _begun(last: AuditHead | None, head: AuditHead) -> AuditHead:
    """After which record the next ones come. Raises PreconditionFailed where the chain is another
    one than before.
    """
    first = AuditHead(seal=head.pruned_seal, hash=head.pruned_hash)
    if last is None:
        return first
    if last.seal < first.seal:
        say(f"Records {last.seal + 1} to {first.seal} were forgotten before this.", err=True)
        return first
    if last.seal > head.seal:
        raise PreconditionFailed(
            f"The audit was put back or altered: it ends at seal {head.seal}, and record "
            f"{last.seal} was written already.",
            reason=ALTERED,
        )
    if last.seal == head.seal and last.hash != head.hash:
        raise PreconditionFailed(
            f"The audit was altered: the record with seal {last.seal} is another than was written.",
            reason=ALTERED,
        )
    return last


@contextmanager
def _appended(path: Path) -> Iterator[BinaryIO]:
    """Open a file to append to, which no other export does meanwhile; new ones are private."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise InvalidRequest.of("--file", f"cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InvalidRequest.of("--file", "is written by another export") from error
        yield file


def _last_of(file: BinaryIO, path: Path) -> AuditHead | None:
    """The last record of the file; a line that was cut off, as by a kill, is taken away."""
    size = file.seek(0, os.SEEK_END)
    start = file.seek(max(0, size - LONGEST_LINE_BYTES))
    tail = file.read()
    whole = tail.rfind(b"\n") + 1
    lines, cut_off = tail[:whole].splitlines(), tail[whole:]
    foreign = InvalidRequest.of("--file", f"the last line of {path} is no record of the audit")
    if not (cut_off.startswith(BEGIN) or BEGIN.startswith(cut_off)):
        raise foreign
    try:
        last = _head_in(lines[-1]) if lines else None
    except (ValueError, TypeError, KeyError) as error:
        raise foreign from error
    file.truncate(start + whole)
    return last


def _head_in(line: bytes) -> AuditHead:
    document = json.loads(line)
    return AuditHead(seal=int(document["seal"]), hash=bytes.fromhex(document["hash"]))


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
    addition = len(record.objects) - OBJECTS_SHOWN
    return f"{shown} and {addition} more" if addition > 0 else shown


def result_text(record: access_pb2.AuditRecord) -> str:
    """A column for what is rarely there would not fit where it matters most."""
    addition = f" and {record.unrecorded} unrecorded" if record.unrecorded else ""
    return f"{record.result}{addition}"


RECORDS: Final[ListedKind[access_pb2.AuditRecord]] = ListedKind(
    word="record",
    named=lambda record: str(record.id),
    columns=(
        ListColumn(
            "TIME", lambda record, _: record.time.ToDatetime().strftime("%Y-%m-%d %H:%M:%S")
        ),
        ListColumn("WHO", lambda record, _: record.actor),
        ListColumn("FROM", lambda record, _: record.address),
        ListColumn("METHOD", lambda record, _: record.method),
        ListColumn("OBJECTS", lambda record, _: objects_text(record)),
        ListColumn("RESULT", lambda record, _: result_text(record)),
        ListColumn("REASON", lambda record, _: record.reason or "-"),
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
    query = audit_request(options["since"], options["until"], options["credential"])
    records = await api.list_audit(query, limit=options["limit"])
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
    match = _EXPECTED.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter("must be SEAL:HASH, or a line that verify has printed")
    return AuditHead(seal=int(match[1]), hash=bytes.fromhex(match[2]))


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
        raise _ended(reached, head)
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
