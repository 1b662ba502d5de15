"""Which plugins a scheduling cycle runs, in which order and with which weights.

Must not read configuration: whoever does looks names up in the tables and builds a Profile.
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

# Karmada's name: what a binding means that names no scheduler.
DEFAULT_NAME: Final = "default-scheduler"
STARVATION_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter plugin under the name that traces and configuration call it by."""

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
    """A permit plugin under its name."""

    name: str
    run: PermitPlugin


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """A plugin that keeps something for a decision, and what undoes that, if anything does."""

    name: str
    run: Callable[[CycleState, IntArray], Reason | str]
    undo: Callable[[CycleState, IntArray], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostBind:
    """A plugin that hears of committed decisions, under its name."""

    name: str
    run: Callable[[CycleState, IntArray], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSort:
    """A plugin that says in which order those of equal priority wait, under its name."""

    name: str
    run: Callable[[SortState], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The plugins of one scheduler name. A cluster's reason is that of the first filter.

    ``certificate`` is what promises are to be worth where a binding does not say; None: what each
    cluster has best. ``strict``: nothing is placed before the first of the profile that waits where
    both may go. Room is kept for who was overtaken for ``starvation_seconds``.
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
        """Whether plugins keep something for its decisions, or hear of them."""
        return bool(self.reserves or self.post_binds)


# Ranks as Karmada does; what the other scores would say is recorded beside it.
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
    """The active profiles by scheduler name; there is always one for ``DEFAULT_NAME``."""

    by_name: Mapping[str, Profile]

    @classmethod
    def of(cls, profiles: Iterable[Profile]) -> Profiles:
        """These, and the default profile unless one of them takes its name."""
        named = {profile.name: profile for profile in profiles}
        return cls(by_name={DEFAULT_NAME: DEFAULT_PROFILE, **named})

    @property
    def strict_names(self) -> frozenset[str]:
        """What bindings of strict profiles say for their scheduler name."""
        names = {name for name, profile in self.by_name.items() if profile.strict}
        return frozenset(names | {""} if DEFAULT_NAME in names else names)

    def violations_of(self, binding: Binding) -> list[Violation]:
        """One when no profile has the scheduler name of the binding."""
        if not binding.scheduler_name or binding.scheduler_name in self.by_name:
            return []
        names = ", ".join(sorted(self.by_name))
        rule = f"must be one of {names}, not {binding.scheduler_name!r}"
        return [Violation(field="spec.schedulerName", rule=rule)]

    def profile_of(self, binding: Binding) -> Profile:
        """The profile that decides the binding. Raises InvalidRequest when there is none."""
        violations = self.violations_of(binding)
        if violations:
            raise InvalidRequest(violations)
        return self.by_name[binding.scheduler_name or DEFAULT_NAME]


DEFAULT_PROFILES: Final = Profiles.of(())
