"""Profiles: the plugins that a scheduling cycle runs, their order and weights.

Must not read configuration: its reader looks names up in the tables and builds profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from federation.model.arrays import FloatArray, IntArray
from federation.model.errors import InvalidRequest, Violation
from federation.model.placement import Binding, Certificate
from federation.model.reasons import Reason
from federation.scheduler.plugins.filters import FILTERS, FilterPlugin
from federation.scheduler.plugins.permits import PermitPlugin
from federation.scheduler.plugins.scores import SCORES, ScorePlugin
from federation.scheduler.state import CycleState, SortState

# The profile of bindings without a scheduler name; Karmada calls it so.
DEFAULT_NAME: Final = "default-scheduler"
STARVATION_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter plugin, and its name in traces and configuration."""

    name: str
    run: FilterPlugin


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A score plugin with its weight; weight 0 is recorded and does not count."""

    name: str
    run: ScorePlugin
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """A permit plugin and its name."""

    name: str
    run: PermitPlugin


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """A plugin that reserves something for a decision, and the function that gives it back."""

    name: str
    run: Callable[[CycleState, IntArray], Reason | str]
    undo: Callable[[CycleState, IntArray], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostBind:
    """A plugin that is called after a decision was committed, and its name."""

    name: str
    run: Callable[[CycleState, IntArray], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSort:
    """A plugin that orders waiting bindings of equal priority, and its name."""

    name: str
    run: Callable[[SortState], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The plugins of one scheduler name. The reason for a cluster is that of its first refusal.

    ``certificate`` is what promises must be worth if a binding does not state it; None: the best
    that each cluster has. ``strict``: no binding is placed before the first waiting one of the
    profile, where both may go. Capacity is kept for overtaken bindings for ``starvation_seconds``.
    """

    name: str
    filters: tuple[Filter, ...]
    scores: tuple[Score, ...]
    permits: tuple[Permit, ...] = ()
    reserves: tuple[Reserve, ...] = ()
    post_binds: tuple[PostBind, ...] = ()
    queue_sort: QueueSort | None = None
    certificate: Certificate | None = None
    strict: bool = False
    starvation_seconds: float = STARVATION_SECONDS

    @property
    def keeps_or_hears(self) -> bool:
        """Return whether the profile has reserve or postBind plugins."""
        return bool(self.reserves or self.post_binds)


# Ranks as Karmada does: the other scores have weight 0 and are recorded.
DEFAULT_PROFILE: Final = Profile(
    name=DEFAULT_NAME,
    filters=tuple(
        Filter(name=name, run=run) for name, run in FILTERS.items() if name != "Capacity"
    ),
    scores=tuple(
        Score(name=name, run=run, weight=int(name == "ClusterLocality"))
        for name, run in SCORES.items()
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The active profiles by scheduler name; ``DEFAULT_NAME`` always has one."""

    by_name: Mapping[str, Profile]

    @classmethod
    def of(cls, profiles: Iterable[Profile]) -> Profiles:
        """Return these profiles, and the default one unless one of them has its name."""
        named = {profile.name: profile for profile in profiles}
        return cls(by_name={DEFAULT_NAME: DEFAULT_PROFILE, **named})

    @property
    def strict_names(self) -> frozenset[str]:
        """Return the scheduler names by which bindings choose a strict profile."""
        names = {name for name, profile in self.by_name.items() if profile.strict}
        return frozenset(names | {""} if DEFAULT_NAME in names else names)

    def violations_of(self, binding: Binding) -> list[Violation]:
        """Return a violation if no profile has the scheduler name of the binding."""
        if not binding.scheduler_name or binding.scheduler_name in self.by_name:
            return []
        names = ", ".join(sorted(self.by_name))
        rule = f"must be one of {names}, not {binding.scheduler_name!r}"
        return [Violation(field="spec.schedulerName", rule=rule)]

    def profile_of(self, binding: Binding) -> Profile:
        """Return the profile that decides the binding. Raises InvalidRequest without one."""
        violations = self.violations_of(binding)
        if violations:
            raise InvalidRequest(violations)
        return self.by_name[binding.scheduler_name or DEFAULT_NAME]


DEFAULT_PROFILES: Final = Profiles.of(())
