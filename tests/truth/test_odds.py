"""Odds, and the oracle that goes by them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.truth.odds import ManyRuns, best_division, found_by_oracle, refusals_of
from lab.truth.plans import Line, Plan
from lab.truth.streams import Stream, free_rn, nodes_of, stream

SMALL = Plan(line=Line.CAREFUL, seed=1, bindings=40, nodes=(9, 10))
RUNS = 20


def test_replicas_are_divided_so_that_they_fit_where_that_is_possible() -> None:
    members = [nodes_of(name, 8, 1) for name in ("member1", "member2")]
    wanted = stream(Stream.PLAIN, 1, 1, [node for nodes in members for node in nodes])[0]
    ahead = [ManyRuns(nodes, free_rn(nodes), RUNS, 1) for nodes in members]
    room = [int(runs.room_l(wanted)[0]) for runs in ahead]
    for replicas in (1, sum(room)):
        odds, division = best_division(replace(wanted, replicas=replicas), ahead)
        assert odds == 0.0
        assert sum(division) == replicas
        assert all(part <= most for part, most in zip(division, room, strict=True))
    odds, _ = best_division(replace(wanted, replicas=sum(room) + 1), ahead)
    assert odds == 1.0


@pytest.mark.parametrize("allowed", [0.0, 1.0])
def test_an_oracle_loses_what_it_may_and_no_more(allowed: float) -> None:
    found = found_by_oracle(SMALL, RUNS, allowed)
    assert found.promised > 0
    assert bool(found.pending) is bool(allowed)


def test_as_many_refused_bindings_had_fitted_as_the_study_says() -> None:
    found, refusals = refusals_of(SMALL, RUNS)
    assert len(refusals) == found.refused > 0
    assert sum(each.had_fitted for each in refusals) == found.fitted
    assert {0.0 <= each.odds <= 1.0 for each in refusals} == {True}
