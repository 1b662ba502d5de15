"""The capacity of a working copy for trials: where an attempt would go, which nothing is told of.

For one thread. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self, TypeVar

from federation.capacity.reserve import Refused
from federation.model.estimate import Estimates
from federation.scheduler.decide import Decided, Draft, Scarcity, decide
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.deciding import PackedCapacity, peers_beside, placed
from federation.services.scheduling.drafts import draft_of
from federation.services.scheduling.shares import Reserved
from federation.services.scheduling.verdicts import request_room, take_over
from federation.services.scheduling.working_copy import WorkingCopy


@dataclass(kw_only=True, eq=False)
class TrialCapacity(PackedCapacity):
    """All that can be promised now to an attempt, whatever is kept for bindings that wait.

    Only the working copy and the attempt are changed. No trial asks plugins or quotas, looks
    again, or says what is scarce.
    """

    attempt: Attempt
    now: float

    @classmethod
    def of(cls, working: WorkingCopy, attempt: Attempt, now: float) -> Self:
        """Return the capacity for a trial of an attempt."""
        return cls(working=working, decision=attempt.id, attempt=attempt, now=now)

    def refine(self, draft: Draft, decided: Decided[Reserved], estimates: Estimates) -> None:
        """Return None: a trial is not looked at again."""

    def reserve(self, draft: Draft, decided: Decided[Reserved]) -> Reserved | Refused | None:
        """Make the decision the attempt's, and promise what it asks for."""
        take_over(self.attempt, draft, decided, self.working.snapshot, self.now)
        return self.working.reserve(request_room(self.working, self.attempt, draft.certificate))

    def scarcity(self, draft: Draft) -> Scarcity | None:  # noqa: ARG002 - of no draft
        """Return None: nobody reads the reason of a trial."""
        return None


T = TypeVar("T", bound=TrialCapacity)


def tried_together(
    attempts: Iterable[Attempt], capacity_of: Callable[[Attempt], T]
) -> list[T] | None:
    """Place all attempts, each beside those before it; None where one has no place.

    Returns the capacities, each with a copy of its attempt that has the decision.
    """
    capacities: list[T] = []
    for attempt in attempts:
        capacity = capacity_of(attempt.trial())
        working, trial, now = capacity.working, capacity.attempt, capacity.now
        fleet = working.snapshot.fleet_at(now)
        peers = peers_beside(trial, placed(former.attempt for former in capacities))
        decided = decide(fleet, draft_of(trial, fleet, now, peers), capacity, now)
        if not decided.decision.is_placed:
            return None
        capacities.append(capacity)
    return capacities
