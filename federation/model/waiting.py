"""The states of bindings that wait for capacity, and how long they wait.

Pure values. Must not decide which binding is tried: the scheduler does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from federation.model.workload import TargetCluster

# The gate of a binding that people have suspended.
SUSPENDED: Final = "suspended"


class WaitState(StrEnum):
    """The state of a binding that waits.

    ACTIVE: it is tried next. BACKOFF: a try failed for a passing reason. UNSCHEDULABLE: no cluster
    has capacity. GATED: it must not be tried.
    """

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


class Leaving(NamedTuple):
    """``replicas`` of a binding, by its key, that leave a cluster because of ``decision``."""

    binding: str
    cluster: str
    replicas: int
    decision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """Capacity that is kept for a binding that waits for other replicas to leave.

    ``shares`` are its size in replicas; it is kept ``until`` then. Times are in Unix seconds. In
    the clusters that it ``avoids``, earlier victims did not leave in time.
    """

    since: float
    until: float
    shares: tuple[TargetCluster, ...]
    leaving: tuple[Leaving, ...]
    avoids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The wait of a binding for the ``remainder`` of its replicas. Times are in Unix seconds.

    ``next_try`` is for BACKOFF. ``gate`` says what a GATED binding waits for. ``short_of`` is for
    people.

    ``overtaken_by`` is the first later binding that was placed, at ``overtaken_since``, in a
    cluster where this one might have gone. Capacity is kept for this one since ``earmarked_since``,
    and for the shares of ``nominated``.

    A ``gang`` waits as one: ``entry`` is the member that stands for all, and ``priority`` the
    highest of them. ``ordered_at`` replaces ``since`` in the order, unless None. ``has_timed_out``
    is true from ``times_out`` on.
    """

    state: WaitState
    since: float
    attempts: int = 0
    next_try: float | None = None
    remainder: int = 0
    short_of: str = ""
    gate: str = ""
    overtaken_since: float | None = None
    overtaken_by: str = ""
    earmarked_since: float | None = None
    nominated: Nomination | None = None
    gang: str = ""
    entry: str = ""
    priority: int = 0
    ordered_at: float | None = None
    times_out: float | None = None
    has_timed_out: bool = False

    @property
    def place_at(self) -> float:
        """Return the instant by which it is ordered within its priority."""
        return self.since if self.ordered_at is None else self.ordered_at

    @property
    def is_suspended(self) -> bool:
        """Return whether people have suspended it."""
        return self.gate == SUSPENDED

    @property
    def is_tried(self) -> bool:
        """Return whether it is placed as soon as there is capacity."""
        return self.state is not WaitState.GATED
