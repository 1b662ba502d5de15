"""The capacity of a working copy for trials: where an attempt would go, which nothing is told of.

For one thread. Must not read or write the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from federation.capacity.reserve import Refused
from federation.model.estimate import Estimates
from federation.scheduler.decide import Decided, Draft, Scarcity
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.decide import request_room, take_over
from federation.services.scheduling.packed_capacity import PackedCapacity
from federation.services.scheduling.shares import Reserved


@dataclass(kw_only=True, eq=False)
class TrialCapacity(PackedCapacity):
    """All that can be promised now to an attempt, whatever is kept for bindings that wait.

    Only the working copy and the attempt are changed. No trial asks plugins or quotas, looks
    again, or says what is scarce.
    """

    attempt: Attempt
    now: float

    def refine(self, draft: Draft, decided: Decided[Reserved], estimates: Estimates) -> None:
        """Return None: a trial is not looked at again."""

    def reserve(self, draft: Draft, decided: Decided[Reserved]) -> Reserved | Refused | None:
        """Make the decision the attempt's, and promise what it asks for."""
        take_over(self.attempt, decided, self.working.snapshot, self.now)
        return self.working.reserve(request_room(self.working, self.attempt, draft.certificate))

    def scarcity(self, draft: Draft) -> Scarcity | None:  # noqa: ARG002 - of no draft
        """Return None: nobody reads the reason of a trial."""
        return None
