"""Fields that the schema does not know are found wherever they are, and looked for only so long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from google.protobuf.message import Message

from federation.codec import unknown_numbers
from federation.codec.unknown_numbers import UnknownField, unknown_of, unknown_of_large
from federation.v1.scheduling_pb2 import ScheduleBatchRequest

Look: TypeAlias = Callable[[Message], UnknownField | None]

# Field 999, a number.
UNKNOWN = b"\xb8\x3e\x01"


def batch(items: int) -> ScheduleBatchRequest:
    asked = ScheduleBatchRequest()
    for number in range(items):
        item = asked.items.add()
        item.binding.metadata.name = f"web-{number}"
        item.binding.metadata.labels["app"] = "web"
        item.binding.spec.reschedule_triggered_at.seconds = 1
    return asked


LOOKS = pytest.mark.parametrize("look", [unknown_of, unknown_of_large])


@LOOKS
def test_a_message_without_unknown_fields_stays_as_it_is(look: Look) -> None:
    asked = batch(2)
    assert look(asked) is None
    assert asked == batch(2)


@LOOKS
@pytest.mark.parametrize(
    ("at", "path"),
    [
        (lambda asked: asked, ""),
        (lambda asked: asked.items[1], "items[1]"),
        (lambda asked: asked.items[1].binding.spec, "items[1].binding.spec"),
        (
            lambda asked: asked.items[0].binding.spec.reschedule_triggered_at,
            "items[0].binding.spec.rescheduleTriggeredAt",
        ),
    ],
    ids=["itself", "an item", "deep", "a timestamp"],
)
def test_an_unknown_field_is_found_with_its_number(
    look: Look, at: Callable[[ScheduleBatchRequest], Message], path: str
) -> None:
    asked = batch(2)
    at(asked).MergeFromString(UNKNOWN)
    assert look(asked) == (path, 999)


def test_of_what_is_large_only_so_much_is_looked_at_in_one_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, rests = batch(2), list[None]()
    tolerations = asked.items[1].binding.spec.placement.cluster_tolerations
    for number in range(100):
        tolerations.add(key=f"k{number}")
    monkeypatch.setattr(unknown_numbers, "MOST_LOOKED_AT", 50)
    monkeypatch.setattr(unknown_numbers, "MOST_PIECES", 99)
    assert unknown_of_large(asked, lambda: rests.append(None)) is None
    assert len(rests) == 3, "once before each long step"
    assert len(tolerations) == 100
    tolerations[99].MergeFromString(UNKNOWN)
    # A list of more is looked at with the message that holds it.
    assert unknown_of_large(asked) == ("items[1].binding.spec.placement", None)
