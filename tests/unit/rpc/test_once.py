"""Idempotency keys: the same request is the same bytes, another one is not, bad keys are told."""

from __future__ import annotations

import pytest

from federation.codec.violations import Violations
from federation.model.errors import InvalidRequest
from federation.rpc.bindings import once_of
from federation.services.values import Once
from federation.v1.resource_pb2 import ObjectMeta, ResourceBinding, ResourceBindingSpec
from federation.v1.scheduling_pb2 import ScheduleBatchItem, ScheduleRequest

LABELS = {f"l{number}": str(number) for number in range(20)}


def request(*, key: str = "k1", replicas: int = 2, backwards: bool = False) -> ScheduleRequest:
    labels = dict(reversed(LABELS.items())) if backwards else LABELS
    return ScheduleRequest(
        binding=ResourceBinding(
            metadata=ObjectMeta(namespace="shop", name="web", labels=labels),
            spec=ResourceBindingSpec(replicas=replicas),
        ),
        idempotency_key=key,
    )


def once(message: ScheduleRequest | ScheduleBatchItem) -> Once | None:
    found = Violations()
    made = once_of(message, "c1", found)
    found.check()
    return made


def test_without_a_key_a_request_is_itself_alone() -> None:
    assert once(request(key="")) is None


def test_the_same_request_is_the_same_under_any_key_and_in_any_order_of_its_maps() -> None:
    first = once(request())
    assert first is not None
    assert (first.caller, first.key, len(first.body_hash)) == ("c1", "k1", 32)
    again = once(request(key="k2", backwards=True))
    assert again is not None
    assert again.body_hash == first.body_hash


def test_another_request_is_another() -> None:
    first, other = once(request()), once(request(replicas=3))
    assert first is not None
    assert other is not None
    assert first.body_hash != other.body_hash


def test_the_request_keeps_its_key() -> None:
    message = request()
    once(message)
    assert message.idempotency_key == "k1"


def test_items_of_a_batch_have_keys_of_their_own() -> None:
    item = ScheduleBatchItem(binding=request().binding, idempotency_key="k1")
    assert once(item) is not None


@pytest.mark.parametrize("key", ["x" * 129, "line\nbreak", "nul\0", " "])
def test_bad_keys_are_told(key: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        once(request(key=key))
    assert [each.field for each in raised.value.violations] == ["idempotencyKey"]


def test_the_longest_key_is_taken() -> None:
    longest = "ü" * 128
    made = once(request(key=longest))
    assert made is not None
    assert made.key == longest
