"""The inputs of one scheduling cycle, as decisions store them for replays.

Must not estimate or pack: estimates are an argument of the cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

from federation.model.estimate import Estimates
from federation.model.placement import Binding
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.state import BindingContext


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecisionInputs:
    """Everything that a cycle reads, except the time and the estimates."""

    binding: Binding
    fleet: Fleet
    profile: Profile
    surroundings: BindingContext

    def schedule(self, availability: Estimates, now: float) -> Decision:
        """Run the cycle on these inputs. Raises PluginFailed."""
        return schedule(
            self.binding,
            self.fleet,
            availability,
            now=now,
            profile=self.profile,
            surroundings=self.surroundings,
        )
