"""What members of a gang are told of the one that found no place."""

from __future__ import annotations

from federation.model.placement import Gang
from federation.model.quotations import quoted
from federation.scheduler.waiting.gangs import unplaced_text

TRAIN = Gang(name="train", size=3)


def test_the_first_clause_of_the_reason_stands_there() -> None:
    text = unplaced_text(TRAIN, "w1", "0 replicas are available, 1 wanted; short of cpu", 0)
    assert text == (
        "w1 of gang train was not placed; short of room for w1: 0 replicas are available, 1 wanted"
    )


def test_a_quotation_is_not_cut() -> None:
    """What was left of it had no end, and the words after it were taken for a part of it."""
    sentence = quoted("no; not on Fridays")
    text = unplaced_text(TRAIN, "w1", f"{sentence}; short of cpu", 1)
    assert text.endswith(f"nor was 1 more; short of room for w1: {sentence}")
