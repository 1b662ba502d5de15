"""The capacity of a working copy, as the decision of one attempt sees it.

Plain functions of one thread. Must not read or write the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from federation.capacity.reserve import Refused
from federation.model.estimate import Estimates
from federation.scheduler.decide import Decided, Draft, OfferedCapacity
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.claims import beside_claims
from federation.services.scheduling.fresh_reports import unseen_in
from federation.services.scheduling.hooks import keep, let_go
from federation.services.scheduling.packed_capacity import PackedCapacity
from federation.services.scheduling.quotas import beyond
from federation.services.scheduling.shares import Reserved
from federation.services.scheduling.verdicts import request_room, standing_of, take_over


@dataclass(kw_only=True, eq=False)
class LiveCapacity(PackedCapacity):
    """All that can be promised now, to an attempt: beside claims, within quotas, with plugins."""

    attempt: Attempt
    now: float

    @cached_property
    def offer(self) -> OfferedCapacity:
        """Estimates beside the claims of bindings that come first, within a stated move."""
        working, attempt = self.working, self.attempt
        certificate = attempt.candidate.certificate or attempt.profile.certificate
        estimates = working.availability(attempt.candidate, certificate)
        estimates, kept_for = beside_claims(working, attempt, estimates, self.now)
        if attempt.stated is not None:
            estimates = attempt.stated.within(estimates, working.snapshot.positions)
        return OfferedCapacity(estimates, kept_for)

    def available(self, draft: Draft) -> OfferedCapacity:  # noqa: ARG002 - of one attempt
        """Return the offer to the attempt."""
        return self.offer

    def refine(
        self, draft: Draft, decided: Decided[Reserved], estimates: Estimates
    ) -> Estimates | None:
        """Look again at a binding that is about to be refused for good.

        Reports that are asked for now may help otherwise. A waiting binding is decided again with
        newer reports anyway, and a plan does not count on luck.
        """
        attempt = self.attempt
        if attempt.again or attempt.stated is not None:
            return None
        if unseen_in(self.working, attempt, decided.decision):
            return None
        return super().refine(draft, decided, estimates)

    def reserve(self, draft: Draft, decided: Decided[Reserved]) -> Reserved | Refused | None:
        """Take what its quota leaves, what plugins keep for it, and room for its shares.

        Nothing is taken where one of them is not to be had, nor where the newest decision still
        stands. Raises PreconditionFailed where a stated move would come out otherwise.
        """
        working, attempt = self.working, self.attempt
        take_over(attempt, draft, decided, working.snapshot, self.now)
        attempt.is_refined = decided.is_refined
        if attempt.stated is not None:
            attempt.stated.check(attempt.candidate, decided.decision)
        requested = request_room(working, attempt, draft.certificate)
        attempt.standing = standing_of(attempt)
        if attempt.standing is not None:
            return None
        if objection := beyond(attempt) or keep(working, attempt, self.now):
            return Refused(reasons={"": objection})
        reserved = working.reserve(requested)
        if isinstance(reserved, Refused):
            let_go([attempt])
        return reserved
