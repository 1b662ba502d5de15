"""Silence counts only while somebody listened."""

from __future__ import annotations

from federation.failover.silence import MAX_DEAF_SECONDS, Silences

STALE_SECONDS, LOST_SECONDS = 30.0, 300.0


def looked(
    silences: Silences, now: float, *stale: str, could_hear_at: float | None = None
) -> Silences:
    return silences.looked(
        now,
        stale,
        stale_seconds=STALE_SECONDS,
        could_hear_at=now if could_hear_at is None else could_hear_at,
    )


def looked_until(silences: Silences, end: int, *stale: str) -> Silences:
    for now in range(int(silences.looked_at) + 1, end + 1):
        silences = looked(silences, float(now), *stale)
    return silences


def test_it_counts_from_the_last_word_and_ends_with_the_next() -> None:
    seen = looked_until(Silences.begun(0.0), 1000)
    seen = looked_until(seen, 1269, "a")
    assert seen.silent["a"].since == 1001 - STALE_SECONDS
    assert seen.lost(LOST_SECONDS) == []
    seen = looked_until(seen, 1271, "a")
    assert seen.lost(LOST_SECONDS) == ["a"]
    assert looked(seen, 1272.0).silent == {}


def test_a_start_and_a_sleep_begin_it_anew() -> None:
    seen = looked_until(Silences.begun(0.0), 299, "a")
    assert seen.lost(LOST_SECONDS) == []
    slept = looked(seen, 299.0 + MAX_DEAF_SECONDS + 1, "a")
    assert slept.silent["a"].since == slept.looked_at
    assert looked_until(slept, 600, "a").lost(LOST_SECONDS) == []


def test_it_does_not_count_while_the_database_cannot_be_read() -> None:
    seen = looked_until(Silences.begun(0.0), 299, "a")
    for now in range(300, 400):
        seen = looked(seen, float(now), "a", could_hear_at=299.0)
    assert seen.lost(LOST_SECONDS) == []
    assert seen.silent["a"].since == 399.0
    assert looked_until(seen, 700, "a").lost(LOST_SECONDS) == ["a"]


def test_who_fell_silent_with_its_control_plane_has_its_time_anew_once() -> None:
    seen = looked_until(Silences.begun(0.0), 1000)
    # By its last words it is silent since 971.
    seen = looked_until(seen, 1015, "a", "long")
    for now in range(1016, 1315):
        seen = seen.looked(
            float(now),
            ["a", "b", "long"],
            stale_seconds=STALE_SECONDS,
            could_hear_at=float(now),
            left_alone=["a", "b"],
        )
    assert seen.silent["a"].since == seen.silent["b"].since == 1016
    assert seen.lost(LOST_SECONDS) == ["long"]
    seen = looked_until(seen, 1316, "a", "b", "long")
    assert seen.lost(LOST_SECONDS) == ["a", "b", "long"]


def test_who_was_silent_long_before_its_control_plane_went_is_lost_in_time() -> None:
    seen = looked_until(looked_until(Silences.begun(0.0), 1000), 1200, "a")
    seen = seen.looked(
        1201.0, ["a"], stale_seconds=STALE_SECONDS, could_hear_at=1201.0, left_alone=["a"]
    )
    assert looked_until(seen, 1271, "a").lost(LOST_SECONDS) == ["a"]
