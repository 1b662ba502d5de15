"""Idempotency keys: which requests are the same one, asked again by the same caller.

Must not remember anything: the use case does.
"""

from __future__ import annotations

import hashlib
from copy import deepcopy

from federation.codec.violations import Violations
from federation.services.values import Once
from federation.v1 import scheduling_pb2 as messages

MAX_KEY_CHARACTERS = 128


def once_of(
    request: messages.ScheduleRequest | messages.ScheduleBatchItem, caller: str, found: Violations
) -> Once | None:
    """None without a key. What is compared is the whole request but for the field of the key."""
    key = request.idempotency_key
    if not key:
        return None
    if len(key) > MAX_KEY_CHARACTERS or not key.isprintable() or not key.strip():
        rule = f"must be at most {MAX_KEY_CHARACTERS} printable characters, not only blanks"
        found.add("idempotencyKey", rule)
        return None
    body = deepcopy(request)
    body.ClearField("idempotency_key")
    return Once(
        caller=caller,
        key=key,
        # Maps have no order on the wire; sorted by key the same request gives the same bytes.
        body_hash=hashlib.sha256(body.SerializeToString(deterministic=True)).digest(),
    )
