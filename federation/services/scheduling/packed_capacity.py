"""The capacity of a working copy: everything that can be promised there, packed into cells.

For one thread. Must not read or write the store, nor know who asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from federation.capacity.reserve import Refused
from federation.model.estimate import Estimates
from federation.scheduler.decide import Decided, Draft, OfferedCapacity, Scarcity
from federation.scheduler.promisable import looked_again
from federation.services.scheduling.shares import Reserved
from federation.services.scheduling.working_copy import WorkingCopy


@dataclass(kw_only=True, eq=False)
class PackedCapacity:
    """A ``CapacityModel`` of one draft, whose decision gets the id ``decision``.

    The binding holds something in the clusters ``held``. With ``adopts`` its replicas run already
    and are new to the ledgers. Only with ``looks_again`` a refusal is looked at a second time.
    """

    working: WorkingCopy
    decision: str
    held: Iterable[str] = ()
    adopts: bool = False
    looks_again: bool = True

    def available(self, draft: Draft) -> OfferedCapacity:
        """Return all that can be promised."""
        return OfferedCapacity(self.working.availability(draft.binding, draft.certificate))

    def refine(
        self, draft: Draft, decided: Decided[Reserved], estimates: Estimates
    ) -> Estimates | None:
        """Look again, for the binding without the clusters that it has to leave."""
        if not self.looks_again:
            return None
        binding = decided.inputs.binding
        return looked_again(self.working.rooms, binding, draft.certificate, estimates)

    def reserve(self, draft: Draft, decided: Decided[Reserved]) -> Reserved | Refused | None:
        """Promise all shares in the working copy, or none."""
        return self.working.reserve(
            self.working.request(
                draft.binding,
                self.decision,
                decided.decision.clusters,
                certificate=draft.certificate,
                held=self.held,
                adopts=self.adopts,
                refines=decided.is_refined,
                placed=draft.binding.clusters,
            )
        )

    def scarcity(self, draft: Draft) -> Scarcity | None:
        """Return the means to say what is scarce on the working copy."""
        certificate = draft.certificate
        return Scarcity(
            estimate=partial(
                self.working.availability, certificate=certificate, leaves_large=False
            ),
            remembered=self.working.scarcities(certificate),
        )
