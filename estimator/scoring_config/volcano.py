"""Volcano's scheduler.conf, as far as its binpack plugin is concerned.

Must not be strict: Volcano ignores an argument it cannot use, and so do we, with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from estimator.binpack.strategy import ResourceWeight
from estimator.binpack.volcano import VolcanoBinpack
from estimator.scoring_config.documents import (
    Fault,
    FaultType,
    InvalidConfiguration,
    Stage,
    load_document,
)
from federation.model.resources import CPU, MEMORY

_PLUGIN = "binpack"
_ACTIONS = frozenset(
    {
        "allocate",
        "backfill",
        "enqueue",
        "gangpreempt",
        "gangreclaim",
        "preempt",
        "reclaim",
        "shuffle",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolcanoConfiguration:
    """The content of scheduler.conf. ``binpack`` is None when the plugin orders no nodes."""

    binpack: VolcanoBinpack | None
    warnings: tuple[str, ...]


def read_volcano(text: str) -> VolcanoConfiguration:
    """Raises InvalidConfiguration where Volcano refuses to start."""
    return volcano_configuration(load_document(text))


def volcano_configuration(document: Mapping[str, Any]) -> VolcanoConfiguration:
    """The configuration of a document that is parsed already."""
    _check_actions(document.get("actions"))
    warnings: list[str] = []
    binpack = None
    for path, plugin in _plugins(document.get("tiers")):
        # Of several entries the last one's arguments win: Volcano keeps plugins by name.
        if plugin.get("name") == _PLUGIN:
            enabled = plugin.get("enableNodeOrder") is not False
            arguments = _Arguments(plugin.get("arguments"), f"{path}.arguments", warnings)
            binpack = arguments.binpack() if enabled else None
    return VolcanoConfiguration(binpack=binpack, warnings=tuple(warnings))


def _check_actions(actions: object) -> None:
    if not isinstance(actions, str):
        raise _refused("actions", "must be a comma-separated string of actions")
    for action in actions.split(","):
        if action.strip() not in _ACTIONS:
            names = ", ".join(sorted(_ACTIONS))
            raise _refused("actions", f"names {action.strip()!r}, but must be out of {names}")


def _plugins(tiers: object) -> list[tuple[str, Mapping[str, Any]]]:
    """Every plugin entry with its path, tier after tier."""
    plugin_sections = []
    for at, tier in enumerate(_list(tiers, "tiers")):
        path = f"tiers[{at}]"
        plugins = _object(tier, path).get("plugins")
        for position, plugin in enumerate(_list(plugins, f"{path}.plugins")):
            field = f"{path}.plugins[{position}]"
            plugin_sections.append((field, _object(plugin, field)))
    return plugin_sections


def _list(value: object, path: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _refused(path, "must be a list")
    return value


def _object(value: object, path: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refused(path, "must be an object")
    return value


def _refused(field: str, rule: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        Stage.DECODE, [Fault(field=field, rule=rule, type=FaultType.TYPE_INVALID)]
    )


class _Arguments:
    """The plugin's arguments: only YAML integers count as weights, and only a string as a list."""

    def __init__(self, arguments: object, path: str, warnings: list[str]) -> None:
        self._values = _object(arguments, path)
        self._path = path
        self._warnings = warnings

    def binpack(self) -> VolcanoBinpack | None:
        """Return None for a plugin weight of 0: then Volcano registers no node order."""
        weight = self._integer("binpack.weight")
        # cpu and memory have keys of their own; in the list of resources they mean nothing.
        weights = {
            CPU: self._resource_weight("binpack.cpu"),
            MEMORY: self._resource_weight("binpack.memory"),
        }
        for resource in self._resources():
            if resource not in weights:
                weights[resource] = self._resource_weight(f"binpack.resources.{resource}")
        if weight == 0:
            return None
        return VolcanoBinpack(
            weight=weight,
            weights=tuple(
                ResourceWeight(resource=resource, weight=amount)
                for resource, amount in weights.items()
            ),
        )

    def _resources(self) -> list[str]:
        listed = self._values.get("binpack.resources", "")
        if not isinstance(listed, str):
            self._ignore("binpack.resources", "is not a comma-separated string")
            return []
        return [name.strip() for name in listed.split(",") if name.strip()]

    def _resource_weight(self, key: str) -> int:
        weight = self._integer(key)
        if weight < 0:
            self._ignore(key, "is negative and counts as 1")
            return 1
        return weight

    def _integer(self, key: str) -> int:
        value = self._values.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
            self._ignore(key, "is not an integer of 64 bits and counts as 1")
            return 1
        return value

    def _ignore(self, key: str, why: str) -> None:
        self._warnings.append(f"{self._path}[{key}] {why}")
