"""Scheduler profiles out of a FederationSchedulerConfiguration, strictly.

Shaped like the KubeSchedulerConfiguration people know. Must not find plugins: they come in as a
catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from federation.codec.plugin_args import read_args
from federation.codec.pods import fields_at, list_at, object_at
from federation.codec.violations import Violations, joined
from federation.model.errors import InvalidRequest
from federation.model.placement import Certificate
from federation.scheduler.plugins.profile import (
    DEFAULT_PROFILE,
    STARVATION_SECONDS,
    Filter,
    Permit,
    PostBind,
    Profile,
    Profiles,
    QueueSort,
    Reserve,
    Score,
)
from federation.scheduler.plugins.registry import IN_TREE, ExtensionPoint, Plugin

API_VERSION: Final = "fedsched.io/v1"
KIND: Final = "FederationSchedulerConfiguration"
MAX_WEIGHT: Final = 1_000_000
ALL: Final = "*"
QUEUEING: Final = ("queueing", "starvationSeconds")
BEST_EFFORT, STRICT = "BestEffort", "Strict"
MOST_SECONDS: Final = 31_536_000
# Affinity groups and overflow tiers rest on it.
INDISPENSABLE: Final = "ClusterAffinity"


class Catalog(Protocol):
    """The plugins that a configuration may name."""

    def names(self) -> Iterable[str]: ...

    def find(self, name: str) -> Plugin | None:
        """The plugin of that name; raises InvalidRequest when it cannot be loaded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Enabled:
    """A plugin that a profile runs; the weight is for scores."""

    plugin: Plugin
    weight: int


# What one profile runs, by name in the order it runs, at each extension point.
_Plan = dict[ExtensionPoint, dict[str, _Enabled]]


def profiles_from_document(document: object, catalog: Catalog, path: str = "") -> Profiles:
    """The profiles; raises InvalidRequest with every broken rule, under ``path``."""
    found = Violations()
    fields = fields_at(document, path, ("apiVersion", "kind", "profiles"), found)
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if fields.get(name) != expected:
            found.add(joined(path, name), f"must be {expected}, not {fields.get(name)!r}")
    here = joined(path, "profiles")
    entries = list_at(fields.get("profiles"), here, found)
    if not entries and not found:
        found.add(here, "is required: at least one profile")
    reader = _Reader(catalog, found)
    profiles: dict[str, Profile] = {}
    for position, entry in enumerate(entries):
        profile = reader.profile(entry, f"{here}[{position}]")
        if profile.name in profiles:
            found.add(f"{here}[{position}].schedulerName", f"{profile.name!r} is there already")
        profiles[profile.name] = profile
    found.check()
    return Profiles.of(profiles.values())


class _Reader:
    """Reads profiles, one after the other, into one list of violations."""

    def __init__(self, catalog: Catalog, found: Violations) -> None:
        self._catalog = catalog
        self._found = found

    def profile(self, entry: object, path: str) -> Profile:
        known = ("schedulerName", "certificate", "plugins", "pluginConfig", *QUEUEING)
        fields = fields_at(entry, path, known, self._found)
        name = fields.get("schedulerName")
        if not (isinstance(name, str) and name and name.isprintable()):
            self._found.add(f"{path}.schedulerName", "is required, text")
        words = [point.value for point in ExtensionPoint]
        points = fields_at(fields.get("plugins"), f"{path}.plugins", words, self._found)
        plan = {
            point: self._point(points.get(point.value), point, f"{path}.plugins.{point}")
            for point in ExtensionPoint
        }
        args = self._args(fields.get("pluginConfig"), plan, f"{path}.pluginConfig")
        certificate = self._certificate(fields.get("certificate"), f"{path}.certificate")
        return replace(
            _profile(str(name), plan, args),
            certificate=certificate,
            strict=self._strict(fields.get("queueing"), f"{path}.queueing"),
            starvation_seconds=self._starvation(
                fields.get("starvationSeconds"), f"{path}.starvationSeconds"
            ),
        )

    def _strict(self, value: object, path: str) -> bool:
        if value not in (None, BEST_EFFORT, STRICT):
            self._found.add(path, f"must be {BEST_EFFORT} or {STRICT}, not {value!r}")
        return value == STRICT

    def _starvation(self, value: object, path: str) -> float:
        if value is None:
            return STARVATION_SECONDS
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value <= MOST_SECONDS
        ):
            rule = f"must be a number above 0 and at most {MOST_SECONDS}, not {value!r}"
            self._found.add(path, rule)
            return STARVATION_SECONDS
        return float(value)

    def _certificate(self, value: object, path: str) -> Certificate | None:
        if value is None:
            return None
        words = [each.value for each in Certificate]
        if value not in words:
            self._found.add(path, f"must be one of {', '.join(words)}, not {value!r}")
            return None
        return Certificate(str(value))

    def _point(self, entry: object, point: ExtensionPoint, path: str) -> dict[str, _Enabled]:
        """The defaults that are not disabled, then what is enabled."""
        fields = fields_at(entry, path, ("enabled", "disabled"), self._found)
        disabled = self._disabled(fields.get("disabled"), point, f"{path}.disabled")
        kept = {name: each for name, each in _defaults(point).items() if not disabled & {name, ALL}}
        here, seen = f"{path}.enabled", set()
        for position, item in enumerate(list_at(fields.get("enabled"), here, self._found)):
            name, enabled = self._enabled(item, point, f"{here}[{position}]")
            if enabled is None:
                continue
            if name in seen:
                self._found.add(f"{here}[{position}].name", f"{name!r} is there already")
            seen.add(name)
            kept[name] = enabled
        if point is ExtensionPoint.QUEUE_SORT and len(kept) > 1:
            self._found.add(here, "must name one plugin: a queue has one order")
        if point is ExtensionPoint.FILTER and INDISPENSABLE not in kept:
            rule = f"must leave {INDISPENSABLE} on, which affinity groups and tiers rest on"
            self._found.add(f"{path}.disabled", rule)
        return kept

    def _disabled(self, entries: object, point: ExtensionPoint, path: str) -> set[str]:
        names = set()
        for position, item in enumerate(list_at(entries, path, self._found)):
            here = f"{path}[{position}]"
            name = fields_at(item, here, ("name",), self._found).get("name")
            if name == ALL or self._plugin(name, f"{here}.name", point) is not None:
                names.add(str(name))
        return names

    def _enabled(
        self, item: object, point: ExtensionPoint, path: str
    ) -> tuple[str, _Enabled | None]:
        known = ("name", "weight") if point is ExtensionPoint.SCORE else ("name",)
        fields = fields_at(item, path, known, self._found)
        name, weight = fields.get("name"), fields.get("weight", 1)
        if type(weight) is not int or not 0 <= weight <= MAX_WEIGHT:
            rule = f"must be a whole number from 0 to {MAX_WEIGHT}, not {weight!r}"
            self._found.add(f"{path}.weight", rule)
            return "", None
        plugin = self._plugin(name, f"{path}.name", point)
        return str(name), None if plugin is None else _Enabled(plugin=plugin, weight=weight)

    def _plugin(self, name: object, path: str, point: ExtensionPoint | None) -> Plugin | None:
        """The plugin, of this point when one is given; None when that was noted as wrong."""
        if not (isinstance(name, str) and name):
            self._found.add(path, "is required, the name of a plugin")
            return None
        try:
            plugin = self._catalog.find(name)
        except InvalidRequest as error:
            self._found.extend(each.under(path) for each in error.violations)
            return None
        if plugin is None:
            names = ", ".join(sorted(self._catalog.names()))
            self._found.add(path, f"there is no plugin {name!r}; plugins are {names}")
        elif point not in (None, plugin.point):
            self._found.add(path, f"{name} is a {plugin.point} plugin, not a {point} plugin")
            return None
        return plugin

    def _args(self, entries: object, plan: _Plan, path: str) -> dict[str, object]:
        """Arguments by plugin; a plugin that this profile does not run cannot have any."""
        args: dict[str, object] = {}
        for position, item in enumerate(list_at(entries, path, self._found)):
            here = f"{path}[{position}]"
            fields = fields_at(item, here, ("name", "args"), self._found)
            name = fields.get("name")
            plugin = self._plugin(name, f"{here}.name", None)
            if plugin is None:
                continue
            if name in args:
                self._found.add(f"{here}.name", f"{name!r} is there already")
            elif name not in plan[plugin.point]:
                self._found.add(f"{here}.name", f"{name} is not enabled in this profile")
            args[str(name)] = read_args(
                object_at(fields.get("args"), f"{here}.args", self._found),
                plugin.args,
                f"{here}.args",
                self._found,
            )
        return args


def _profile(name: str, plan: _Plan, args: Mapping[str, object]) -> Profile:
    return Profile(
        name=name,
        filters=tuple(
            Filter(name=plugin, run=each.plugin.bound(args.get(plugin)))
            for plugin, each in plan[ExtensionPoint.FILTER].items()
        ),
        scores=tuple(
            Score(name=plugin, run=each.plugin.bound(args.get(plugin)), weight=each.weight)
            for plugin, each in plan[ExtensionPoint.SCORE].items()
        ),
        permits=tuple(
            Permit(name=plugin, run=each.plugin.bound(args.get(plugin)))
            for plugin, each in plan[ExtensionPoint.PERMIT].items()
        ),
        reserves=tuple(
            Reserve(
                name=plugin,
                run=each.plugin.bound(args.get(plugin)),
                undo=each.plugin.bound_undo(args.get(plugin)),
            )
            for plugin, each in plan[ExtensionPoint.RESERVE].items()
        ),
        post_binds=tuple(
            PostBind(name=plugin, run=each.plugin.bound(args.get(plugin)))
            for plugin, each in plan[ExtensionPoint.POST_BIND].items()
        ),
        queue_sort=next(
            (
                QueueSort(name=plugin, run=each.plugin.bound(args.get(plugin)))
                for plugin, each in plan[ExtensionPoint.QUEUE_SORT].items()
            ),
            None,
        ),
    )


def _defaults(point: ExtensionPoint) -> dict[str, _Enabled]:
    """What the default profile runs there."""
    weights = {
        ExtensionPoint.FILTER: {each.name: 0 for each in DEFAULT_PROFILE.filters},
        ExtensionPoint.SCORE: {each.name: each.weight for each in DEFAULT_PROFILE.scores},
        ExtensionPoint.PERMIT: {each.name: 0 for each in DEFAULT_PROFILE.permits},
    }.get(point, {})
    return {name: _Enabled(plugin=IN_TREE[name], weight=weight) for name, weight in weights.items()}
