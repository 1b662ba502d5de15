"""A ledger that a whole batch of changes is made to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from federation.capacity.holdings import FirstStakes
from federation.capacity.ledger import LedgerInWork
from tests.unit.capacity.test_ledger import BINDINGS, COUNTS, SHARES, STEPS, Life

CHANGES = st.lists(
    st.tuples(BINDINGS, SHARES | st.none(), st.none() | COUNTS.map(lambda ran: {"": ran})),
    max_size=6,
)


@given(STEPS, CHANGES)
def test_changes_of_a_batch_come_to_the_same_as_one_after_the_other(
    steps: list[tuple[Any, ...]], changes: list[tuple[Any, ...]]
) -> None:
    life = Life()
    for number, step in enumerate(steps):
        life.take(step, number)
    before, ledger = life.ledger, life.ledger
    bindings, outstanding = before.bindings(), before.outstanding()
    work = LedgerInWork(before)
    for number, (binding, shares, adopted) in enumerate(changes):
        if shares is None:
            ledger = ledger.released(binding)
            work.release(binding)
        else:
            ledger = ledger.decided(binding, f"e{number}", shares, adopted)
            first, before_it, given = (
                FirstStakes(binding, f"e{number}"),
                work.stake_of(binding),
                tuple(shares),
            )
            stake = work.stake(first, before_it, given, adopted)
            # What is alike in clusters is remembered from the first of them on.
            assert work.stake(first, before_it, given, adopted) == stake
            work.put(binding, before_it, stake)
        assert work.version == ledger.version
        assert work.stake_of(binding) == ledger.stake_of(binding)
        assert work.ledger.outstanding_of(binding) == ledger.outstanding_of(binding)
        assert work.ledger.is_open == ledger.is_open == bool(ledger.outstanding())
    assert work.ledger == ledger
    assert work.ledger.outstanding() == ledger.outstanding()
    assert (before.bindings(), before.outstanding()) == (bindings, outstanding)
