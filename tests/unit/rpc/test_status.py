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


def error_classes() -> list[type[FederationError]]:
    return [
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, FederationError)
    ]


def wire(error: FederationError) -> status_pb2.Status:
    status = status_pb2.Status()
    ((key, value),) = status_of(error).trailing_metadata
    assert key == "grpc-status-details-bin"
    status.ParseFromString(value)
    return status


def unpacked(status: status_pb2.Status) -> tuple[error_details_pb2.ErrorInfo, list[Violation]]:
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        assert detail.Unpack(info) or detail.Unpack(bad)
    return info, [
        Violation(field=each.field, rule=each.description) for each in bad.field_violations
    ]


@pytest.mark.parametrize("kind", error_classes())
def test_every_error_class_has_a_row_or_is_a_kind_of_one_that_has(
    kind: type[FederationError],
) -> None:
    assert kind in CODES or kind.__mro__[1] in set(CODES) - {FederationError}


def test_only_the_unexpected_is_internal_and_no_two_classes_share_a_code() -> None:
    assert len(set(CODES.values())) == len(CODES)
    assert CODES[FederationError] is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("kind", [BinariesNotFound, DataDirectoryInUse])
def test_a_class_without_a_row_has_its_ancestors(kind: type[FederationError]) -> None:
    assert code_of(kind.__new__(kind)) is grpc.StatusCode.UNAVAILABLE


def test_a_status_carries_code_message_reason_and_every_violation() -> None:
    violations = [
        Violation(field="spec.replicas", rule="must be from 0 to 2147483647, not -1"),
        Violation(field="spec.resource.name", rule="is required"),
    ]
    status = wire(InvalidRequest(violations, reason="BAD_BINDING"))
    info, received = unpacked(status)
    assert status.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert status.message == "; ".join(map(str, violations))
    assert (info.reason, info.domain) == ("BAD_BINDING", "fedsched")
    assert received == violations


def test_other_errors_carry_no_violations() -> None:
    info, violations = unpacked(wire(NotFound("There is no cluster 'a'.")))
    assert (info.reason, violations) == ("NOT_FOUND", [])


@pytest.mark.parametrize("text", ["x", "é", "\N{CJK UNIFIED IDEOGRAPH-4E00}", "\x00\r\n"])
def test_a_status_fits_into_the_trailers_whatever_is_in_it(text: str) -> None:
    many = [Violation(field=text * 300, rule=text * 5000) for _ in range(1000)]
    error = InvalidRequest(many)
    status = status_of(error)
    ((_, value),) = status.trailing_metadata
    percent_encoded = sum(1 if 0x20 <= byte < 0x7F else 3 for byte in status.details.encode())
    assert len(value) * 4 / 3 + percent_encoded < TRAILER_BYTES
    _, violations = unpacked(wire(error))
    shown, last = violations[:-1], violations[-1]
    assert shown
    assert last.rule == f"and {1000 - len(shown)} more"
