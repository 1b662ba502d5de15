"""Ids of decisions carry the database's time, wherever the clock of the control plane stands."""

from __future__ import annotations

from uuid import UUID

import pytest

from federation.model.errors import Unavailable
from federation.services.scheduling.decision_ids import DecisionIds, time_of, uuid7

AT = 1_790_000_000.25
RANDOM = (1 << 74) - 1


class Elapsed:
    """A clock that a test moves on; it begins anywhere."""

    seconds = 77.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("randomness", [0, 1, 1 << 62, RANDOM])
def test_an_id_is_a_uuid_of_version_7(randomness: int) -> None:
    uuid = uuid7(AT, randomness)
    assert (uuid.version, uuid.variant) == (7, UUID(int=8 << 60).variant)
    assert time_of(str(uuid)) == AT
    assert uuid.int & ((1 << 62) - 1) == randomness & ((1 << 62) - 1)
    assert (uuid.int >> 64) & 0xFFF == randomness >> 62


def test_ids_follow_the_time_that_was_learned() -> None:
    elapsed = Elapsed()
    ids = DecisionIds(elapsed, lambda bits: RANDOM >> (74 - bits))
    assert UUID(ids.new()).version == 4
    assert time_of(ids.new()) is None
    ids.learn(AT)
    elapsed.seconds += 3.0
    assert time_of(ids.new()) == AT + 3.0


def test_an_id_that_is_an_hour_away_is_refused_and_the_next_one_is_not() -> None:
    elapsed = Elapsed()
    ids = DecisionIds(elapsed, lambda _: 1)
    ids.learn(AT)
    earlier = ids.new()
    ids.check([earlier], AT + 3600.0)
    with pytest.raises(Unavailable, match="moved by more than an hour"):
        ids.check([earlier], AT + 3601.0)
    ids.check([ids.new()], AT + 3601.0)
    with pytest.raises(Unavailable):
        ids.check([ids.new()], AT - 3600.0)
    ids.check([earlier], AT - 3600.0)
