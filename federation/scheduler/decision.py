"""The answer of a scheduling cycle.

Must not know how decisions are reserved, stored or sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from federation.model.placement import Binding, gang_to_join
from federation.model.reasons import Reason, joined
from federation.model.workload import TargetCluster
from federation.scheduler.trace import Trace, to_plain

GANG: Final = "spec.gang has no effect here: this is where the binding would go by itself"


class Outcome(StrEnum):
    """The end of a cycle. UNSCHEDULABLE: capacity is missing; NO_FIT: no cluster passes filters or
    spread.
    """

    SCHEDULED = "SCHEDULED"
    PARTIAL = "PARTIAL"
    UNSCHEDULABLE = "UNSCHEDULABLE"
    NO_FIT = "NO_FIT"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """The clusters that get replicas, by ascending name, and the reason.

    ``clusters`` is empty for UNSCHEDULABLE and NO_FIT. ``remainder`` counts replicas without a
    cluster: all of them then, some when PARTIAL, 0 when SCHEDULED. ``reason`` has no clause when
    SCHEDULED.
    """

    outcome: Outcome
    clusters: tuple[TargetCluster, ...]
    remainder: int
    reason: Reason
    trace: Trace

    @property
    def is_placed(self) -> bool:
        """Return whether it is placed in whole or in part; a decision over no replicas is."""
        return self.outcome in {Outcome.SCHEDULED, Outcome.PARTIAL}

    def to_plain(self) -> dict[str, Any]:
        """Return builtins only, fit for JSON, the trace included."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    def explained(self, *clauses: Reason) -> Decision:
        """Return the decision with more clauses behind its reason."""
        return replace(self, reason=joined(self.reason, *clauses))


def by_itself(decision: Decision, binding: Binding) -> Decision:
    """Return the decision with the warning that its gang was not considered."""
    if gang_to_join(binding) is None:
        return decision
    warnings = (*decision.trace.warnings, GANG)
    return replace(decision, trace=replace(decision.trace, warnings=warnings))
