"""Bindings out of requests: of a size that is kept, and sound by themselves; large ones are read
in a thread.

Idempotency keys: which requests are the same one, asked again by the same caller.

Must not know what will be done with them, nor remember anything: the use cases do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from copy import deepcopy
from typing import TypeVar

from federation.codec.binding_warnings import warnings_of_binding
from federation.codec.bindings import binding_from_message
from federation.codec.counts import refuse_too_many
from federation.codec.ranges import size
from federation.codec.violations import Violations
from federation.model.placement import Binding
from federation.rpc.large_requests import is_large_request
from federation.services.threads import DECODING
from federation.services.values import IdempotencyKey
from federation.v1 import resource_pb2, scheduling_pb2

# What Kubernetes keeps; an answer holds 4 MiB, the decision included.
MAX_BINDING_BYTES = 1536 * 1024
MAX_KEY_CHARACTERS = 128

M = TypeVar("M")
T = TypeVar("T")


def add_warnings(binding: resource_pb2.ResourceBinding, decision: scheduling_pb2.Decision) -> None:
    """Add the warnings about a binding as it was sent to the answer about it."""
    decision.warnings.extend(warnings_of_binding(binding))


def read_binding(message: resource_pb2.ResourceBinding) -> Binding:
    """Raises InvalidRequest with every broken rule."""
    found = Violations()
    size(message, "binding", found, most_bytes=MAX_BINDING_BYTES)
    found.check()
    refuse_too_many(message, "", found)
    found.check()
    return binding_from_message(message)


async def read_off_loop(message: M, read: Callable[[M], T]) -> T:
    """What ``read`` makes of what a request holds; a large request is read in a thread."""
    if is_large_request():
        return await DECODING.run(read, message)
    return read(message)


def once_of(
    request: scheduling_pb2.ScheduleRequest | scheduling_pb2.ScheduleBatchItem,
    caller: str,
    found: Violations,
) -> IdempotencyKey | None:
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
    return IdempotencyKey(
        caller=caller,
        key=key,
        # Maps have no order on the wire; sorted by key the same request gives the same bytes.
        body_hash=hashlib.sha256(body.SerializeToString(deterministic=True)).digest(),
    )
