"""From the bytes of a request to its message: how many there may be, and which have to wait.

A deserializer must not raise, as gRPC would answer UNKNOWN: what is wrong is a value until then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from federation.codec.rights import DECLARED, SMALL_REQUEST_BYTES
from federation.codec.unknown_numbers import UnknownField, unknown_of, unknown_of_large
from federation.model.errors import FederationError, InvalidRequest, LimitExceeded
from federation.rpc.large_requests import LARGE_BYTES, Undecoded
from federation.services.threads import RESTS

MEBIBYTE = 1024 * 1024
MAX_REQUEST_BYTES = 4 * MEBIBYTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Stands in for a request whose bytes are too many, or not the message they should be."""

    error: FederationError


def deserializer_of(
    method: str, deserialize: Callable[[bytes], Any] | None, *, waits: bool
) -> Callable[[bytes], Any] | None:
    """That of a method's requests. Callers count on all they say, so that it must be known."""
    declared = DECLARED.get(method)
    most_bytes = SMALL_REQUEST_BYTES if declared is None else declared.max_request_bytes
    known_only = declared is not None and not declared.ignores_unknown_fields
    return bounded(deserialize, most_bytes, waits=waits, known_only=known_only)


def bounded(
    deserialize: Callable[[bytes], Any] | None,
    most_bytes: int,
    *,
    waits: bool,
    known_only: bool = False,
) -> Callable[[bytes], Any] | None:
    """The deserializer, with what it refuses as a value: gRPC would answer UNKNOWN for it.

    More bytes than these are not looked at; a large request that ``waits`` is left undecoded.
    ``known_only``: a message with fields that its schema does not know is refused.
    """
    if deserialize is None:
        return None

    def decode(payload: bytes) -> Any:
        if len(payload) > most_bytes:
            text = f"the request has {len(payload)} bytes: this method takes at most {most_bytes}"
            unread = Unread(error=LimitExceeded(text))
            return _turned_away(unread, len(payload)) if waits else unread
        if waits and len(payload) > LARGE_BYTES:
            return Undecoded(
                payload=payload,
                received_bytes=len(payload),
                decode=partial(_message, deserialize),
                check=_known_of_large if known_only else None,
            )
        return deserialized(deserialize, payload, known_only=known_only)

    return decode


def _turned_away(unread: Unread, received_bytes: int) -> Undecoded:
    """Who sends too much waits for a turn like others, and meanwhile sends nothing more."""
    return Undecoded(payload=b"", received_bytes=received_bytes, decode=lambda _: unread)


def deserialized(
    deserialize: Callable[[bytes], Any], payload: bytes, *, known_only: bool = True
) -> Any:
    """The message, or what is wrong with its bytes."""
    message = _message(deserialize, payload)
    return _known(message, unknown_of) if known_only else message


def _message(deserialize: Callable[[bytes], Any], payload: bytes) -> Any:
    try:
        return deserialize(payload)
    except Exception:  # noqa: BLE001 - whatever is wrong with the bytes, the caller sent them
        rule = "the request is not a valid protobuf message of this method"
        return Unread(error=InvalidRequest.of("", rule, reason="UNDECODABLE"))


def _known(message: Any, look: Callable[[Any], UnknownField | None]) -> Any:
    """The message, unless it holds what nobody here knows."""
    place = None if isinstance(message, Unread) else look(message)
    if place is None:
        return message
    path, number = place
    what = "a field number" if number is None else f"field number {number}"
    rule = f"holds {what} that this control plane does not know: is it older than the caller?"
    return Unread(error=InvalidRequest.of(path, rule, reason="UNKNOWN_FIELD"))


def _known_of_large(message: Any) -> Any:
    return _known(message, partial(unknown_of_large, rest=RESTS.take))


def decoded(request: Any) -> Any:
    if isinstance(request, Unread):
        raise request.error
    return request
