"""Failover frozen, by people or because many fell silent at once, and what those have in common.

Must not decide who is silent. Many at once are rather our fault, or one network's, than theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from federation.failover.silence import Silences
from federation.model.access import EVERYTHING, Scope
from federation.model.cluster import Cluster
from federation.model.quotations import HIDDEN_SENTENCE

BREAKER: Final = "breaker"
HIDDEN_PEOPLE: Final = "people"
AT_ONCE_SECONDS: Final = 60.0
NAMED: Final = 20


class BreakerLimits(NamedTuple):
    """At least so many clusters, and more than so many percent, fall silent within a minute.

    ``by_place``: so many of one place freeze that place alone.
    """

    clusters: int = 5
    percent: float = 30.0
    by_place: bool = False

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

    def as_seen(self, scope: Scope) -> Freeze:
        """Without names, for who may not see everything: people and clusters are in its reason."""
        if scope == EVERYTHING:
            return self
        by = self.by if self.is_by_breaker else HIDDEN_PEOPLE
        return replace(self, by=by, reason=HIDDEN_SENTENCE)


class ScopeKind(StrEnum):
    """What clusters of one place share, as their origins have it; ourselves first."""

    CONTROL_PLANE = "control_plane"
    REGION = "region"
    PROVIDER = "provider"

    @property
    def words(self) -> str:
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeScope:
    """A region, a provider, or what one control plane heard, by its name."""

    kind: ScopeKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.words} {self.name}"

    def has(self, cluster: Cluster) -> bool:
        """Whether the cluster itself says so: who heard it, it does not know."""
        match self.kind:
            case ScopeKind.REGION:
                return cluster.region == self.name
            case ScopeKind.PROVIDER:
                return cluster.provider == self.name
            case ScopeKind.CONTROL_PLANE:
                return False
            case _ as never:
                assert_never(never)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPlace:
    """A place off whose clusters nothing moves, by people's word or because many of it fell silent.

    ``clusters`` were in it then, where they do not say so themselves.
    """

    place: FreezeScope
    freeze: Freeze
    clusters: frozenset[str] = field(default_factory=frozenset)

    def has(self, cluster: Cluster) -> bool:
        return cluster.name in self.clusters or self.place.has(cluster)

    def as_seen(self, scope: Scope) -> FrozenPlace:
        """Without names of others, for who sees some cluster of it."""
        return replace(self, freeze=self.freeze.as_seen(scope))


class SilentPlace(NamedTuple):
    """A place of which many fell silent at once: who did, and who is in it."""

    place: FreezeScope
    fell: Sequence[str]
    clusters: Collection[str]


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

    def frozen_in(
        self, place: FreezeScope, freeze: Freeze, clusters: Collection[str] = ()
    ) -> Breaker:
        frozen = FrozenPlace(place=place, freeze=freeze, clusters=frozenset(clusters))
        places = [*self.resumed_in(place).places, frozen]
        return replace(self, places=tuple(sorted(places, key=lambda each: str(each.place))))

    def resumed_in(self, place: FreezeScope, silent: Collection[str] = ()) -> Breaker:
        """Those of it that are ``silent`` do not freeze it again."""
        places = tuple(each for each in self.places if each.place != place)
        return replace(self, places=places, accepted=self.accepted | frozenset(silent))

    def freeze_of(self, place: FreezeScope) -> Freeze | None:
        return next((each.freeze for each in self.places if each.place == place), None)

    def freeze_at(self, cluster: Cluster) -> Freeze | None:
        """What keeps all from being moved off it, that of everything first."""
        there = (each.freeze for each in self.places if each.has(cluster))
        return self.freeze or next(there, None)

    def holds(self, cluster: Cluster) -> bool:
        """Whether it is in a place where nothing moves."""
        return any(each.has(cluster) for each in self.places)


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
    breaker = _thawed_in_places(breaker, origins, heard, limits)
    if breaker.freeze is not None:
        # Who was not heard since a start is not back either.
        is_over = _is_over(total - len(heard), total, limits)
        if breaker.freeze.is_by_breaker and is_over:
            return replace(breaker, freeze=None)
        return breaker
    fell = _fallen(breaker, silences, origins, lost)
    if len(fell) < limits.clusters or len(fell) * 100 <= limits.percent * total:
        if limits.by_place:
            return _frozen_in_places(breaker, silences, origins, lost=lost, limits=limits)
        return breaker
    common = [*common_of(fell, origins)]
    if database_back_at is not None and now - database_back_at < AT_ONCE_SECONDS:
        common.insert(0, "the database could not be read until then")
    reason = f"{len(fell)} of {total} clusters fell silent within a minute: {_named(fell)}. " + (
        f"In common: {'; '.join(common)}." if common else "They have nothing in common."
    )
    return breaker.frozen(BREAKER, now, reason)


def _is_over(silent: int, total: int, limits: BreakerLimits) -> bool:
    return silent * 100 < limits.thaw_percent * total or not total


def _named(fell: Sequence[str]) -> str:
    return ", ".join(fell[:NAMED]) + (f" and {len(fell) - NAMED} more" if fell[NAMED:] else "")


def _thawed_in_places(
    breaker: Breaker,
    origins: Mapping[str, ClusterOrigin],
    heard: Collection[str],
    limits: BreakerLimits,
) -> Breaker:
    """Without those places that froze by themselves, and of which few are silent by now."""
    for each in breaker.places:
        if not each.freeze.is_by_breaker:
            continue
        there = each.clusters or _clusters_in(each.place, origins)
        known = [name for name in there if name in origins]
        silent = sum(name not in heard for name in known)
        if not limits.by_place or _is_over(silent, len(known), limits):
            breaker = breaker.resumed_in(each.place)
    return breaker


def _frozen_in_places(
    breaker: Breaker,
    silences: Silences,
    origins: Mapping[str, ClusterOrigin],
    *,
    lost: Collection[str],
    limits: BreakerLimits,
) -> Breaker:
    for place, fell, there in suspected(breaker, silences, origins, lost=lost, limits=limits):
        reason = (
            f"{len(fell)} of {len(there)} clusters of {place} fell silent within a minute: "
            f"{_named(fell)}."
        )
        # Who hears them next is another one.
        kept = there if place.kind is ScopeKind.CONTROL_PLANE else ()
        freeze = Freeze(by=BREAKER, since=silences.looked_at, reason=reason)
        breaker = breaker.frozen_in(place, freeze, kept)
    return breaker


def _clusters_in(place: FreezeScope, origins: Mapping[str, ClusterOrigin]) -> list[str]:
    return [name for name, each in origins.items() if getattr(each, place.kind) == place.name]


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
) -> Sequence[SilentPlace]:
    """Places that are not frozen, of which so many fell silent at once, by the limits for the
    fleet; what the whole fleet has in common is no place.
    """
    found = []
    fell = _fallen(breaker, silences, origins, lost)
    for kind in ScopeKind:
        for name in sorted({getattr(origins[each], kind) for each in fell} - {""}):
            place = FreezeScope(kind=kind, name=name)
            there = _clusters_in(place, origins)
            silent = [each for each in fell if getattr(origins[each], kind) == name]
            is_many = len(silent) >= limits.clusters
            is_many &= len(silent) * 100 > limits.percent * len(there)
            if is_many and len(there) < len(origins) and breaker.freeze_of(place) is None:
                found.append(SilentPlace(place, silent, there))
    return found


def common_of(silent: Collection[str], origins: Mapping[str, ClusterOrigin]) -> Iterator[str]:
    """What all of these share and others do not, ourselves first."""
    fell = set(silent)
    for kind in ScopeKind:
        values = {getattr(origins[name], kind) for name in fell}
        value = next(iter(values)) if len(values) == 1 else ""
        place = FreezeScope(kind=kind, name=value)
        same = _clusters_in(place, origins)
        # Of a fleet that has nothing else it says nothing.
        if value and len(same) < len(origins):
            heard = "their agents were heard through " if kind is ScopeKind.CONTROL_PLANE else ""
            silent = f"{len(fell)} of its {len(same)} clusters silent"
            yield f"{heard}{place}, which has {silent}"
