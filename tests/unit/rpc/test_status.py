"""Errors as gRPC statuses: every class has a code, and every status fits into the trailers."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from federation.embedded_postgres.binaries import BinariesNotFound
from federation.embedded_postgres.server import DataDirectoryInUse
from federation.model import errors
from federation.model.errors import FederationError, InvalidRequest, NotFound, Violation
from federation.rpc.status import CODES, code_of, status_of

# Clients refuse trailers above 8 KiB; binary ones travel base64-encoded.
TRAILER_BYTES = 8 * 1024


def unpacked(error: FederationError) -> tuple[status_pb2.Status, str, list[Violation]]:
    """The status on the wire, its reason, and all violations."""
    status, info = status_pb2.Status(), error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    ((key, value),) = status_of(error).trailing_metadata
    assert key == "grpc-status-details-bin"
    status.ParseFromString(value)
    for detail in status.details:
        assert detail.Unpack(info) or detail.Unpack(bad)
    assert info.domain == "fedsched"
    found = [Violation(field=each.field, rule=each.description) for each in bad.field_violations]
    return status, info.reason, found


def test_every_error_class_has_a_code_of_its_own_or_its_ancestors() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, FederationError):
            assert kind in CODES or kind.__mro__[1] in set(CODES) - {FederationError}, kind
    assert len(set(CODES.values())) == len(CODES)
    assert CODES[FederationError] is grpc.StatusCode.INTERNAL
    for kind in (BinariesNotFound, DataDirectoryInUse):
        assert code_of(kind.__new__(kind)) is grpc.StatusCode.UNAVAILABLE


def test_a_status_carries_code_message_reason_and_every_violation() -> None:
    violations = [
        Violation(field="spec.replicas", rule="must be from 0 to 2147483647, not -1"),
        Violation(field="spec.resource.name", rule="is required"),
    ]
    status, reason, received = unpacked(InvalidRequest(violations, reason="BAD_BINDING"))
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert status.message == "; ".join(map(str, violations))
    assert (reason, received) == ("BAD_BINDING", violations)
    assert unpacked(NotFound("There is no cluster 'a'."))[1:] == ("NOT_FOUND", [])


@pytest.mark.parametrize("text", ["x", "é", "\N{CJK UNIFIED IDEOGRAPH-4E00}", "\x00\r\n"])
def test_a_status_fits_into_the_trailers_whatever_is_in_it(text: str) -> None:
    error = InvalidRequest([Violation(field=text * 300, rule=text * 5000) for _ in range(1000)])
    status = status_of(error)
    ((_, value),) = status.trailing_metadata
    percent_encoded = sum(1 if 0x20 <= byte < 0x7F else 3 for byte in status.details.encode())
    assert len(value) * 4 / 3 + percent_encoded < TRAILER_BYTES
    *shown, last = unpacked(error)[2]
    assert shown
    assert last.rule == f"and {1000 - len(shown)} more"
