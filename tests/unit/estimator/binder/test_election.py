"""Two binders and a lease: there is never more than one leader."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from estimator.kube.lease import Election, Lease

WALL = 1_000_000.0


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
