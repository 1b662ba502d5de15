"""The audit as lines of JSON, for programs that ship logs: each record once, in the order of seals.

Must not write a record that does not follow on the one before it: what was written is the proof
against who can write the database.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

import click

from federation.cli.audit_chain import ALTERED, linked
from federation.cli.connection import connection
from federation.client import Client
from federation.codec.audit import head_from_message, record_from_message
from federation.codec.written import document_from_message
from federation.model.audit import AuditHead
from federation.model.errors import (
    DeadlineMissed,
    InvalidRequest,
    PreconditionFailed,
    Unavailable,
)
from federation.runtime.terminal import json_text, say, say_lines
from federation.v1 import access_pb2

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
                file.write("".join(f"{_line(each)}\n" for each in records).encode())
                file.flush()
                os.fsync(file.fileno())
    except KeyboardInterrupt:
        return


def _line(record: access_pb2.AuditRecord) -> str:
    return json_text(document_from_message(record))


async def _records(api: Client, *, last: AuditHead | None, watch: bool) -> AsyncGenerator[Records]:
    """Those after the ``last`` that is known, in parts; None: all that are kept."""
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
        records = [each for each in page.records if each.seal <= head.seal]
        for each in records:
            last = linked(last, record_from_message(each))
        if records:
            yield records
        elif watch:
            await asyncio.sleep(POLL_SECONDS)
        else:
            return


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
    """Nobody else appends meanwhile. Readable by its owner alone, where it is made."""
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
