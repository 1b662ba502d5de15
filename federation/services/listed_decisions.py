"""Decisions in lists: what is asked for, and what a list says of each without its trace.

Plain values. Must not know how decisions are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome

# Where a list goes on: microseconds since 1970, and the id among what was decided together.
DecisionPlace: TypeAlias = tuple[int, str]


# Before every decision.
FIRST_PLACE: Final[DecisionPlace] = (0, "0" * 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """Which decisions; what is empty or None leaves all.

    ``name`` is that of a binding in exactly ``namespace``; ``among`` are patterns of namespaces, as
    in ``Scope``; ``cluster`` has a share. Times are Unix seconds: from ``since`` on, before
    ``until``.
    """

    namespace: str = ""
    among: tuple[str, ...] = ()
    name: str = ""
    cluster: str = ""
    outcomes: frozenset[Outcome] = frozenset()
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDecision:
    """A decision without what its trace says, but for why it was made."""

    id: str
    namespace: str
    name: str
    binding_generation: int
    created_at: float
    outcome: Outcome
    clusters: tuple[TargetCluster, ...]
    remainder: int
    reason: str
    algorithm_revision: int
    triggers: tuple[str, ...]

    @property
    def place(self) -> DecisionPlace:
        return round(self.created_at * 1_000_000), self.id


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPage:
    """Decisions, the newest first; ``next_after`` is None on the last page."""

    decisions: tuple[ListedDecision, ...]
    next_after: DecisionPlace | None
