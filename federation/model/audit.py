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
    """One change or refusal: actor, time, address, method, objects and result.

    ``at`` is in microseconds since 1970. ``result`` is OK, or the code of a refusal, which
    ``reason`` explains. ``unrecorded`` counts refusals before this one that came too fast to be
    recorded. ``seal`` numbers the records of the chain from 1. ``hash`` is the hash of this record
    and the one before it. Without a seal both are 0 and empty.
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
    """The end of the chain, and the last pruned record: stored records begin after
    ``pruned_seal``.
    """

    seal: int = 0
    hash: bytes = NO_HASH
    pruned_seal: int = 0
    pruned_hash: bytes = NO_HASH


def sealed(records: Iterable[AuditRecord], head: AuditHead) -> tuple[list[AuditRecord], AuditHead]:
    """Seal the records one after the other behind the head; return them and the new head."""
    chain = []
    for record in records:
        hash_ = chained(head.hash, record)
        head = replace(head, seal=head.seal + 1, hash=hash_)
        chain.append(replace(record, seal=head.seal, hash=hash_))
    return chain, head


def chained(previous_hash: bytes, record: AuditRecord) -> bytes:
    """Return the hash of a record behind the hash of its predecessor."""
    values = [
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
    text = json.dumps(values, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(previous_hash + text.encode()).digest()
