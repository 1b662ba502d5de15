"""From the bytes of a request to its message: how many there may be, and which have to wait.

A deserializer must not raise, as gRPC would answer UNKNOWN: what is wrong is a value until then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from federation.model.errors import FederationError, InvalidRequest, LimitExceeded
from federation.rpc.large_requests import LARGE_BYTES, Undecoded

MEBIBYTE = 1024 * 1024
MAX_REQUEST_BYTES = 4 * MEBIBYTE
SMALL_REQUEST_BYTES = 64 * 1024
# What people and programs write at length; everything else names things.
BIG_METHODS = {
    "/federation.v1.Agents/Connect": MAX_REQUEST_BYTES,
    "/federation.v1.Clusters/UpdateCluster": 2 * MEBIBYTE,
    "/federation.v1.Estimates/EstimateComponentSets": MEBIBYTE,
    "/federation.v1.Estimates/EstimateReplicas": MEBIBYTE,
    "/federation.v1.Peers/AskAgent": MAX_REQUEST_BYTES,
    "/federation.v1.Scheduling/Schedule": 2 * MEBIBYTE,
    "/federation.v1.Scheduling/ScheduleBatch": MAX_REQUEST_BYTES,
    "/federation.v1.Scoring/ScoreNodes": MAX_REQUEST_BYTES,
    "/federation.v1.Simulation/Simulate": MAX_REQUEST_BYTES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Stands in for a request whose bytes are too many, or not the message they should be."""

    error: FederationError


def request_bytes(method: str) -> int:
    """How many a request of a method may have."""
    return BIG_METHODS.get(method, SMALL_REQUEST_BYTES)


def bounded(
    deserialize: Callable[[bytes], Any] | None, most_bytes: int, *, waits: bool
) -> Callable[[bytes], Any] | None:
    """The deserializer, with what it refuses as a value: gRPC would answer UNKNOWN for it.

    More bytes than these are not looked at; a large request that ``waits`` is left undecoded.
    """
    if deserialize is None:
        return None
    decode_now = partial(deserialized, deserialize)

    def decode(payload: bytes) -> Any:
        if len(payload) > most_bytes:
            text = f"the request has {len(payload)} bytes: this method takes at most {most_bytes}"
            return Unread(error=LimitExceeded(text))
        if waits and len(payload) > LARGE_BYTES:
            return Undecoded(payload=payload, decode=decode_now)
        return decode_now(payload)

    return decode


def deserialized(deserialize: Callable[[bytes], Any], payload: bytes) -> Any:
    try:
        return deserialize(payload)
    except Exception:  # noqa: BLE001 - whatever is wrong with the bytes, the caller sent them
        rule = "the request is not a valid protobuf message of this method"
        return Unread(error=InvalidRequest.of("", rule, reason="UNDECODABLE"))


def decoded(request: Any) -> Any:
    if isinstance(request, Unread):
        raise request.error
    return request
