"""Failover frozen, by people or because many fell silent at once, and what those have in common.

Must not decide who is silent. Many at once are rather our fault, or one network's, than theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from federation.failover.silence import Silences
from federation.model.cluster import Cluster

BREAKER: Final = "breaker"
AT_ONCE_SECONDS: Final = 60.0
NAMED: Final = 20
# Where faults are that many clusters share, and what of an origin says it; ourselves first.
_SCOPES: Final = (
    ("control plane", "control_plane"),
    ("region", "region"),
    ("provider", "provider"),
)


class BreakerLimits(NamedTuple):
    """At least so many clusters, and more than so many percent, fall silent within a minute."""

    clusters: int = 5
    percent: float = 30.0

    @property
    def thaw_percent(self) -> float:
        """Below this it is over."""
        return self.percent / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """Nothing moves. ``by`` is ``BREAKER`` or who asked for it; ``since`` in Unix seconds."""

    by: str
    since: float
    reason: str

    @property
    def is_by_breaker(self) -> bool:
        return self.by == BREAKER


class ScopeKind(StrEnum):
    """What clusters of one place share."""

    REGION = "region"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeScope:
    """A region, or a provider, by its name."""

    kind: ScopeKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def has(self, cluster: Cluster) -> bool:
        there = cluster.region if self.kind is ScopeKind.REGION else cluster.provider
        return there == self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPlace:
    """A place of which people have said that nothing moves off its clusters."""

    place: FreezeScope
    freeze: Freeze


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Whether failover is frozen, as a whole and in which places.

    ``accepted`` clusters were silent when people let it go on: until they are heard again they do
    not count as falling silent.
    """

    freeze: Freeze | None = None
    accepted: frozenset[str] = field(default_factory=frozenset)
    places: tuple[FrozenPlace, ...] = ()

    def frozen(self, by: str, now: float, reason: str) -> Breaker:
        return replace(self, freeze=Freeze(by=by, since=now, reason=reason))

    def resumed(self, silent: Collection[str]) -> Breaker:
        return replace(self, freeze=None, accepted=frozenset(silent))

    def frozen_in(self, place: FreezeScope, freeze: Freeze) -> Breaker:
        places = [*self.resumed_in(place).places, FrozenPlace(place=place, freeze=freeze)]
        return replace(self, places=tuple(sorted(places, key=lambda each: str(each.place))))

    def resumed_in(self, place: FreezeScope) -> Breaker:
        return replace(self, places=tuple(each for each in self.places if each.place != place))

    def freeze_of(self, place: FreezeScope) -> Freeze | None:
        return next((each.freeze for each in self.places if each.place == place), None)

    def holds(self, cluster: Cluster) -> bool:
        """Whether it is in a place where nothing moves."""
        return any(each.place.has(cluster) for each in self.places)


class ClusterOrigin(NamedTuple):
    """Where a cluster is, and through which control plane its agent was heard last."""

    region: str = ""
    provider: str = ""
    control_plane: str = ""


def judged(
    breaker: Breaker,
    silences: Silences,
    origins: Mapping[str, ClusterOrigin],
    *,
    heard: Collection[str],
    lost: Collection[str],
    limits: BreakerLimits,
    database_back_at: float | None = None,
) -> Breaker:
    """The breaker after a look; ``origins`` has every cluster that was ever heard.

    ``heard`` are those that speak now, ``lost`` those that were lost before: they do not fall
    silent once more, whoever looks. ``database_back_at`` is when the database could be read again
    that could not be for a while.
    """
    now, total = silences.looked_at, len(origins)
    accepted = breaker.accepted - set(heard)
    breaker = breaker if accepted == breaker.accepted else replace(breaker, accepted=accepted)
    if breaker.freeze is not None:
        # Who was not heard since a start is not back either.
        silent = total - len(heard)
        is_over = silent * 100 < limits.thaw_percent * total or not total
        if breaker.freeze.is_by_breaker and is_over:
            return replace(breaker, freeze=None)
        return breaker
    fell = _fallen(breaker, silences, origins, lost)
    if len(fell) < limits.clusters or len(fell) * 100 <= limits.percent * total:
        return breaker
    common = [*common_of(fell, origins)]
    if database_back_at is not None and now - database_back_at < AT_ONCE_SECONDS:
        common.insert(0, "the database could not be read until then")
    named = ", ".join(fell[:NAMED]) + (f" and {len(fell) - NAMED} more" if fell[NAMED:] else "")
    reason = f"{len(fell)} of {total} clusters fell silent within a minute: {named}. " + (
        f"In common: {'; '.join(common)}." if common else "They have nothing in common."
    )
    return breaker.frozen(BREAKER, now, reason)


def _fallen(
    breaker: Breaker,
    silences: Silences,
    origins: Mapping[str, ClusterOrigin],
    lost: Collection[str],
) -> list[str]:
    """Who fell silent within the last minute."""
    return [
        name
        for name, silence in silences.silent.items()
        if silences.looked_at - silence.stale_at < AT_ONCE_SECONDS
        and name not in breaker.accepted
        and name not in lost
        and name in origins
    ]


def suspected(
    breaker: Breaker,
    silences: Silences,
    origins: Mapping[str, ClusterOrigin],
    *,
    lost: Collection[str],
    limits: BreakerLimits,
) -> Mapping[str, str]:
    """Places of which so many fell silent at once, by the limits for the fleet, and how many; what
    the whole fleet has in common is no place.
    """
    found: dict[str, str] = {}
    fell = _fallen(breaker, silences, origins, lost)
    for words, field_name in _SCOPES:
        every = Counter[str](getattr(each, field_name) for each in origins.values())
        silent = Counter[str](getattr(origins[name], field_name) for name in fell)
        for value, count in sorted(silent.items()):
            is_many = count >= limits.clusters and count * 100 > limits.percent * every[value]
            if value and is_many and every[value] < len(origins):
                found[f"{words} {value}"] = f"{count} of {every[value]} clusters"
    return found


def common_of(silent: Collection[str], origins: Mapping[str, ClusterOrigin]) -> Iterator[str]:
    """What all of these share and others do not, ourselves first."""
    fell = set(silent)
    for words, field_name in _SCOPES:
        values = {getattr(origins[name], field_name) for name in fell}
        value = next(iter(values)) if len(values) == 1 else ""
        same = [name for name, each in origins.items() if getattr(each, field_name) == value]
        # Of a fleet that has nothing else it says nothing.
        if value and len(same) < len(origins):
            heard = "their agents were heard through " if field_name == "control_plane" else ""
            silent = f"{len(fell)} of its {len(same)} clusters silent"
            yield f"{heard}{words} {value}, which has {silent}"
