"""Failover frozen, by people or because many clusters fell silent at once.

Must not decide which clusters are silent. Many at once point to our own fault, or a network's.
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
        """Hide names from a scope that may not see all: its reason names people and clusters."""
        if scope == EVERYTHING:
            return self
        by = self.by if self.is_by_breaker else HIDDEN_PEOPLE
        return replace(self, by=by, reason=HIDDEN_SENTENCE)


class ScopeKind(StrEnum):
    """A property that clusters of one place share; the control plane comes first."""

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
        """Whether the cluster says so itself; its control plane is not among its properties."""
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
    """A place off whose clusters nothing moves, by people's word or because many fell silent.

    ``clusters`` were in it then, if their own properties do not say so.
    """

    place: FreezeScope
    freeze: Freeze
    clusters: frozenset[str] = field(default_factory=frozenset)

    def has(self, cluster: Cluster) -> bool:
        return cluster.name in self.clusters or self.place.has(cluster)

    def as_seen(self, scope: Scope) -> FrozenPlace:
        """Hide names from a scope that sees only some of its clusters."""
        return replace(self, freeze=self.freeze.as_seen(scope))


class SilentPlace(NamedTuple):
    """A place of which many clusters fell silent at once: those that fell, and all its clusters."""

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
        return replace(self, places=tuple(sorted(places, key=lambda frozen: str(frozen.place))))

    def resumed_in(self, place: FreezeScope, silent: Collection[str] = ()) -> Breaker:
        """Thaw a place; its clusters that are ``silent`` do not freeze it again."""
        places = tuple(frozen for frozen in self.places if frozen.place != place)
        return replace(self, places=places, accepted=self.accepted | frozenset(silent))

    def freeze_of(self, place: FreezeScope) -> Freeze | None:
        return next((frozen.freeze for frozen in self.places if frozen.place == place), None)

    def freeze_at(self, cluster: Cluster) -> Freeze | None:
        """Return the freeze that keeps bindings in a cluster, the freeze of everything first."""
        freezes = (frozen.freeze for frozen in self.places if frozen.has(cluster))
        return self.freeze or next(freezes, None)

    def holds(self, cluster: Cluster) -> bool:
        """Whether it is in a place where nothing moves."""
        return any(frozen.has(cluster) for frozen in self.places)


class ClusterOrigin(NamedTuple):
    """The place of a cluster, and the control plane that heard its agent last."""

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
    """Return the breaker after a look; ``origins`` has every cluster that was ever heard.

    ``heard`` clusters speak now. ``lost`` ones were lost before and do not fall silent once more.
    ``database_back_at`` is the time at which the database could be read again after an outage.
    """
    now, total = silences.looked_at, len(origins)
    accepted = breaker.accepted - set(heard)
    breaker = breaker if accepted == breaker.accepted else replace(breaker, accepted=accepted)
    breaker = _thawed_in_places(breaker, origins, heard, limits)
    if breaker.freeze is not None:
        # A cluster that was not heard since a start is not back either.
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
    """Thaw places that froze by themselves, and of which few clusters are silent by now."""
    for frozen in breaker.places:
        if not frozen.freeze.is_by_breaker:
            continue
        clusters = frozen.clusters or _clusters_in(frozen.place, origins)
        members = [name for name in clusters if name in origins]
        silent = sum(name not in heard for name in members)
        if not limits.by_place or _is_over(silent, len(members), limits):
            breaker = breaker.resumed_in(frozen.place)
    return breaker


def _frozen_in_places(
    breaker: Breaker,
    silences: Silences,
    origins: Mapping[str, ClusterOrigin],
    *,
    lost: Collection[str],
    limits: BreakerLimits,
) -> Breaker:
    for place, fell, clusters in suspected(breaker, silences, origins, lost=lost, limits=limits):
        reason = (
            f"{len(fell)} of {len(clusters)} clusters of {place} fell silent within a minute: "
            f"{_named(fell)}."
        )
        # Another control plane hears them next.
        stored = clusters if place.kind is ScopeKind.CONTROL_PLANE else ()
        freeze = Freeze(by=BREAKER, since=silences.looked_at, reason=reason)
        breaker = breaker.frozen_in(place, freeze, stored)
    return breaker


def _clusters_in(place: FreezeScope, origins: Mapping[str, ClusterOrigin]) -> list[str]:
    return [name for name, origin in origins.items() if getattr(origin, place.kind) == place.name]


def _fallen(
    breaker: Breaker,
    silences: Silences,
    origins: Mapping[str, ClusterOrigin],
    lost: Collection[str],
) -> list[str]:
    """Return the clusters that fell silent within the last minute."""
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
    """Return unfrozen places of which as many fell silent as freezes a fleet of their size.

    A property that the whole fleet shares is no place.
    """
    places = []
    fell = _fallen(breaker, silences, origins, lost)
    for kind in ScopeKind:
        for name in sorted({getattr(origins[cluster], kind) for cluster in fell} - {""}):
            place = FreezeScope(kind=kind, name=name)
            clusters = _clusters_in(place, origins)
            silent = [cluster for cluster in fell if getattr(origins[cluster], kind) == name]
            is_many = len(silent) >= limits.clusters
            is_many &= len(silent) * 100 > limits.percent * len(clusters)
            if is_many and len(clusters) < len(origins) and breaker.freeze_of(place) is None:
                places.append(SilentPlace(place, silent, clusters))
    return places


def common_of(silent: Collection[str], origins: Mapping[str, ClusterOrigin]) -> Iterator[str]:
    """Yield the properties that all silent clusters share and not all clusters have."""
    fell = set(silent)
    for kind in ScopeKind:
        values = {getattr(origins[name], kind) for name in fell}
        value = next(iter(values)) if len(values) == 1 else ""
        place = FreezeScope(kind=kind, name=value)
        same = _clusters_in(place, origins)
        # A property that all clusters share says nothing.
        if value and len(same) < len(origins):
            heard = "their agents were heard through " if kind is ScopeKind.CONTROL_PLANE else ""
            silent = f"{len(fell)} of its {len(same)} clusters silent"
            yield f"{heard}{place}, which has {silent}"
