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
from federation.scheduler.serialization import to_plain
from federation.scheduler.trace import Trace

GANG: Final = "spec.gang has no effect here: this is where the binding would go by itself"


class Outcome(StrEnum):
    """How a cycle ended. UNSCHEDULABLE: capacity; NO_FIT: filters or spread leave nothing."""

    SCHEDULED = "SCHEDULED"
    PARTIAL = "PARTIAL"
    UNSCHEDULABLE = "UNSCHEDULABLE"
    NO_FIT = "NO_FIT"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decision:
    """Where the replicas go, by ascending cluster name, and why.

    ``clusters`` is empty for UNSCHEDULABLE and NO_FIT. ``remainder`` counts the replicas that no
    cluster got: all of them then, some when PARTIAL, none when SCHEDULED. ``reason`` has
    no clause when SCHEDULED.
    """

    outcome: Outcome
    clusters: tuple[TargetCluster, ...]
    remainder: int
    reason: Reason
    trace: Trace

    @property
    def is_placed(self) -> bool:
        """In whole or in part; of no replicas, nowhere."""
        return self.outcome in {Outcome.SCHEDULED, Outcome.PARTIAL}

    def to_plain(self) -> dict[str, Any]:
        """As builtins only, fit for JSON, the trace included."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    def explained(self, *clauses: Reason) -> Decision:
        """Return the decision with more clauses behind its reason."""
        return replace(self, reason=joined(self.reason, *clauses))


def by_itself(decision: Decision, binding: Binding) -> Decision:
    """The decision, with the warning that others of its gang were not looked at."""
    if gang_to_join(binding) is None:
        return decision
    warnings = (*decision.trace.warnings, GANG)
    return replace(decision, trace=replace(decision.trace, warnings=warnings))
