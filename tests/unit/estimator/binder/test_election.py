"""Two binders and a lease: there is never more than one leader."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from estimator.binder.election import GIVE_UP_SECONDS, Election
from estimator.lease import LEASE_SECONDS, Lease

WALL = 1_000_000.0


def won(election: Election, now: float) -> Lease:
    claim = election.claim(None, now, WALL)
    assert claim is not None
    election.written(now)
    return claim


def test_leader_that_cannot_renew_stops_before_others_begin() -> None:
    leader, other = Election("a"), Election("b")
    lease = replace(won(leader, 0.0), version="1")
    assert other.claim(lease, 0.0, WALL) is None
    assert leader.is_leader(GIVE_UP_SECONDS - 0.1)
    assert not leader.is_leader(GIVE_UP_SECONDS)
    assert other.claim(lease, LEASE_SECONDS - 0.1, WALL) is None
    taken = other.claim(lease, LEASE_SECONDS, WALL)
    assert taken is not None
    assert (taken.holder, taken.version, taken.transitions) == ("b", "1", 1)


def test_clock_of_the_other_does_not_matter() -> None:
    other = Election("b")
    lease = Lease(holder="a", renewed_at=0.0, version="1")
    assert other.claim(lease, 0.0, WALL) is None
    for turn in range(1, 10):
        lease = replace(lease, renewed_at=-float(turn), version=str(turn))
        assert other.claim(lease, turn * 2.0, WALL) is None


def test_renewal_keeps_when_it_was_acquired() -> None:
    election = Election("a")
    lease = replace(won(election, 0.0), version="1")
    renewed = election.claim(lease, 2.0, WALL + 2.0)
    assert renewed == replace(lease, renewed_at=WALL + 2.0)


def test_leader_that_sees_another_one_stops_at_once() -> None:
    election = Election("a")
    won(election, 0.0)
    assert election.claim(Lease(holder="b", version="2"), 1.0, WALL) is None
    assert not election.is_leader(1.0)


@given(turns=st.lists(st.tuples(st.booleans(), st.floats(0.0, 20.0), st.booleans()), max_size=60))
def test_there_is_never_more_than_one_leader(turns: list[tuple[bool, float, bool]]) -> None:
    """Either candidate asks after any wait, and either's write may get lost."""
    candidates = [Election("a"), Election("b")]
    stored: Lease | None = None
    now, version = 0.0, 0
    for is_second, seconds, is_lost in turns:
        now += seconds
        candidate = candidates[is_second]
        claim = candidate.claim(stored, now, WALL + now)
        if claim is not None and not is_lost:
            version += 1
            stored = replace(claim, version=str(version))
            candidate.written(now)
        assert sum(each.is_leader(now) for each in candidates) <= 1
