"""Capacity as it was recorded with a decision, and decisions that are made again on it.

For replays, and for what-ifs on other estimates. Pure: must not estimate or pack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from federation.capacity.reserve import Refused
from federation.model.estimate import Estimates
from federation.model.reasons import Reason
from federation.scheduler.decide import Decided, Draft, OfferedCapacity, decide
from federation.scheduler.decision import Decision
from federation.scheduler.decision_inputs import DecisionInputs


@dataclass(frozen=True, slots=True)
class RecordedCapacity:
    """The ``estimates`` that a decision is made on, and the answer that its shares get.

    ``refused`` says by cluster why they found no capacity; it is empty where they were reserved.
    ``is_refused`` says whether that holds for a decision, which may differ from the recorded one.
    Nothing is said of what is scarce: only the promises of that time could tell.
    """

    estimates: Estimates
    refused: Mapping[str, Reason] = field(default_factory=dict)
    is_refused: Callable[[Decision], bool] = lambda _: True

    def available(self, draft: Draft) -> OfferedCapacity:  # noqa: ARG002 - one draft was recorded
        """Return the recorded estimates: second looks and earmarks are part of them."""
        return OfferedCapacity(self.estimates)

    def refine(self, draft: Draft, decided: Decided[None], estimates: Estimates) -> None:
        """Return None: a second look was recorded with the estimates."""

    def reserve(self, draft: Draft, decided: Decided[None]) -> Refused | None:  # noqa: ARG002 - one draft was recorded
        """Return the recorded refusal where it holds, None where the shares have capacity."""
        if self.refused and self.is_refused(decided.decision):
            return Refused(reasons=self.refused)
        return None

    def scarcity(self, draft: Draft) -> None:
        """Return None: nothing is said."""


def decide_again(inputs: DecisionInputs, capacity: RecordedCapacity, now: float) -> Decision:
    """Decide on recorded inputs. Raises PluginFailed."""
    return decide(inputs.fleet, Draft.of_inputs(inputs), capacity, now).decision
