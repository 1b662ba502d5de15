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


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """What is looked at with all that it holds."""
    looked_at = list[Message]()

    def look(message: Message, rest: Callable[[], None]) -> UnknownField | None:
        looked_at.append(message)
        return unknown_of(message, rest)

    monkeypatch.setattr(unknown_numbers, "unknown_of", look)
    return looked_at


def test_what_is_large_is_looked_at_in_pieces(
    monkeypatch: pytest.MonkeyPatch, pieces: list[Message]
) -> None:
    """However deep it is: the outermost messages one by one, the others with all they hold."""
    asked = batch(10)
    asked.items[9].binding.spec.MergeFromString(UNKNOWN)
    monkeypatch.setattr(unknown_numbers, "MOST_LOOKED_AT", 14)
    assert unknown_of_large(asked) == ("items[9].binding.spec", 999)
    assert pieces == [each.binding for each in asked.items[3:]]


def test_a_list_of_more_is_looked_at_with_the_message_that_holds_it(
    monkeypatch: pytest.MonkeyPatch, pieces: list[Message]
) -> None:
    asked = batch(2)
    tolerations = asked.items[1].binding.spec.placement.cluster_tolerations
    for number in range(100):
        tolerations.add(key=f"k{number}")
    monkeypatch.setattr(unknown_numbers, "MOST_LOOKED_AT", 50)
    monkeypatch.setattr(unknown_numbers, "MOST_PIECES", 99)
    rests = list[None]()
    assert unknown_of_large(asked, lambda: rests.append(None)) is None
    assert len(rests) == 3, "once before each long step"
    assert pieces == [asked.items[1].binding.spec.placement]
    assert len(tolerations) == 100
    tolerations[99].MergeFromString(UNKNOWN)
    where = "items[1].binding.spec.placement"
    assert unknown_of_large(asked) == (where, None)
