"""Waiting for room: the states of it, and how long one waits.

Pure values. Must not decide who is tried: the scheduler does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from federation.model.workload import TargetCluster

# What a binding waits for that people have suspended.
SUSPENDED: Final = "suspended"


class WaitState(StrEnum):
    """ACTIVE: is tried next; BACKOFF: failed for a passing reason; UNSCHEDULABLE: nothing has room;
    GATED: must not be tried.
    """

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"


class Leaving(NamedTuple):
    """``replicas`` of a binding, by its key, that have to leave a cluster by that ``decision``."""

    binding: str
    cluster: str
    replicas: int
    decision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """Room that is kept ``until`` then for a binding that waits for others to leave: as much as
    ``shares`` take, counted in replicas. Times are in Unix seconds.

    In the clusters that it ``avoids`` others that were to leave have not, in time.
    """

    since: float
    until: float
    shares: tuple[TargetCluster, ...]
    leaving: tuple[Leaving, ...]
    avoids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How a binding waits for the ``remainder`` of its replicas. Times are in Unix seconds.

    ``next_try`` is for BACKOFF; ``gate`` says what a GATED one waits for; ``short_of`` is for
    people. ``overtaken_by`` is the key of the first binding that came later and was placed where
    this one might have gone, at ``overtaken_since``; since ``earmarked_since`` room is kept for it,
    and so is what it is ``nominated`` for.
    Of a ``gang`` that waits together ``entry`` is the member that stands for all, and ``priority``
    the highest of all. ``ordered_at`` stands in place of ``since`` in the order, where it is not
    None; ``has_timed_out`` is true from ``times_out`` on.
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
        """By which instant it stands among those of its priority."""
        return self.since if self.ordered_at is None else self.ordered_at

    @property
    def is_suspended(self) -> bool:
        """Whether people have said that it must not be decided."""
        return self.gate == SUSPENDED

    @property
    def is_tried(self) -> bool:
        """Whether it is to be placed as soon as there is room."""
        return self.state is not WaitState.GATED
