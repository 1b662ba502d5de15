"""Records of changes and refusals, and the chain of hashes that shows when one was altered.

Must not know where records are kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

# Before the first record.
NO_HASH: Final = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """Who did what, when, from where, and what came of it.

    ``at`` are microseconds since 1970. ``result`` is OK, or the code of the refusal, which
    ``reason`` explains. ``unrecorded`` refusals before this one came too fast to be recorded.
    ``seal`` counts the records in the chain from 1, and ``hash`` is of this one and all before it;
    0 and empty: it is not sealed yet.
    """

    id: int = 0
    at: int = 0
    actor: str
    credential_id: str = ""
    address: str = ""
    method: str
    objects: tuple[str, ...] = ()
    result: str = "OK"
    reason: str = ""
    request_sha256: str = ""
    unrecorded: int = 0
    seal: int = 0
    hash: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHead:
    """Where the chain ends, and where what is kept of it begins: after ``pruned_seal``."""

    seal: int = 0
    hash: bytes = NO_HASH
    pruned_seal: int = 0
    pruned_hash: bytes = NO_HASH


def sealed(records: Iterable[AuditRecord], head: AuditHead) -> tuple[list[AuditRecord], AuditHead]:
    """The records, sealed one after the other behind the head, and the head then."""
    chain = []
    for record in records:
        hash_ = chained(head.hash, record)
        head = replace(head, seal=head.seal + 1, hash=hash_)
        chain.append(replace(record, seal=head.seal, hash=hash_))
    return chain, head


def chained(before: bytes, record: AuditRecord) -> bytes:
    """The hash of a record behind the hash of the one before it."""
    said = [
        record.id,
        record.at,
        record.actor,
        record.credential_id,
        record.address,
        record.method,
        list(record.objects),
        record.result,
        record.reason,
        record.request_sha256,
        record.unrecorded,
    ]
    text = json.dumps(said, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(before + text.encode()).digest()
