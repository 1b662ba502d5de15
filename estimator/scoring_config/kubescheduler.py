"""KubeSchedulerConfiguration v1: strictly decoded, defaulted, checked, and made into profiles.

Must not accept what kube-scheduler 1.36 refuses, nor refuse earlier than all faults of a stage
are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies import STRATEGIES
from estimator.binpack.profile import ScoringProfile, WeightedPlugin
from estimator.binpack.strategy import PluginStrategy
from estimator.scoring_config.documents import (
    Fault,
    Faults,
    FaultType,
    InvalidConfiguration,
    Stage,
    load_strict_document,
)
from estimator.scoring_config.kubescheduler_rules import (
    API_VERSION,
    BALANCED,
    CONFIGURATION,
    EXTENSION_POINTS,
    FIT,
    KIND,
    PLUGIN_ARGUMENTS,
    configuration_faults,
)
from estimator.scoring_config.shape_rules import (
    shape_faults,
    shape_of,
    weight_faults,
    weights_of,
)
from federation.model.resources import is_qualified_name

_Object = Mapping[str, Any]

_NANOS_PER_SECOND = 1_000_000_000
_SHAPED = ", ".join(reader.type for reader in STRATEGIES.values() if reader.takes_shape)


def read_kube_scheduler(text: str) -> tuple[ScoringProfile, ...]:
    """The profiles of the document, in order.

    Raises InvalidConfiguration with every fault of the first stage that has any: decode,
    validate, or the building of the NodeResourcesFit plugin.
    """
    return kube_scheduler_profiles(load_strict_document(text))


def kube_scheduler_profiles(document: _Object) -> tuple[ScoringProfile, ...]:
    """The profiles of a document that is parsed already."""
    configuration = _with_defaults(_decoded(document))
    _raise_any(Stage.VALIDATE, configuration_faults(configuration))
    profiles = configuration["profiles"]
    _raise_any(
        Stage.PLUGIN,
        (fault for at, profile in enumerate(profiles) for fault in _fit_faults(at, profile)),
    )
    return tuple(map(_profile, profiles))


def _raise_any(stage: Stage, faults: Iterator[Fault]) -> None:
    violations = list(faults)
    if violations:
        raise InvalidConfiguration(stage, violations)


def _decoded(document: _Object) -> dict[str, Any]:
    _raise_any(Stage.DECODE, _type_faults(document, API_VERSION, KIND, ""))
    faults: Faults = []
    decoded: dict[str, Any] = CONFIGURATION(document, "", faults)
    for at, profile in enumerate(decoded.get("profiles", [])):
        for position, config in enumerate(profile.get("pluginConfig", [])):
            path = f"profiles[{at}].pluginConfig[{position}].args"
            config["args"] = _decoded_arguments(config, path, faults)
    _raise_any(Stage.DECODE, iter(faults))
    return decoded


def _decoded_arguments(config: _Object, path: str, faults: Faults) -> Any:
    name, args = config.get("name", ""), config.get("args", {})
    if name not in PLUGIN_ARGUMENTS:
        return args
    if isinstance(args, Mapping):
        typed = {"apiVersion": API_VERSION, "kind": f"{name}Args", **args}
        faults.extend(_type_faults(typed, API_VERSION, f"{name}Args", f"{path}."))
    return PLUGIN_ARGUMENTS[name](args, path, faults)


def _type_faults(document: _Object, api_version: str, kind: str, prefix: str) -> Iterator[Fault]:
    for name, expected in (("apiVersion", api_version), ("kind", kind)):
        if document.get(name) != expected:
            rule = f"must be {expected}"
            yield Fault(field=f"{prefix}{name}", rule=rule, type=FaultType.NOT_SUPPORTED)


def _with_defaults(decoded: _Object) -> dict[str, Any]:
    election = decoded.get("leaderElection", {})
    profiles = decoded.get("profiles") or [{}]
    if len(profiles) == 1:
        profiles = [{"schedulerName": "default-scheduler", **profiles[0]}]
    return {
        "parallelism": 16,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 10,
        **decoded,
        "leaderElection": {
            "leaderElect": election.get("leaderElect", True),
            "leaseDuration": election.get("leaseDuration") or 15 * _NANOS_PER_SECOND,
            "renewDeadline": election.get("renewDeadline") or 10 * _NANOS_PER_SECOND,
            "retryPeriod": election.get("retryPeriod") or 2 * _NANOS_PER_SECOND,
            "resourceLock": election.get("resourceLock") or "leases",
        },
        "profiles": profiles,
    }


def _fit_faults(at: int, profile: _Object) -> Iterator[Fault]:
    """Yield the faults of NodeResourcesFit's arguments, if the profile builds it at all.

    kube-scheduler looks for these only when it builds the plugin; a default plugin is built
    unless it is switched off everywhere.
    """
    if not _is_built(profile.get("plugins", {}), FIT):
        return
    for position, config in enumerate(_configs(profile)):
        if config["name"] == FIT:
            path = f"profiles[{at}].pluginConfig[{position}].args"
            yield from _fit_argument_faults(config["args"], path)


def _fit_argument_faults(args: _Object, path: str) -> Iterator[Fault]:
    for position, name in enumerate(args.get("ignoredResources", [])):
        if not is_qualified_name(name):
            yield _invalid(f"{path}.ignoredResources[{position}]", "must be a resource name")
    for position, group in enumerate(args.get("ignoredResourceGroups", [])):
        field = f"{path}.ignoredResourceGroups[{position}]"
        if "/" in group:
            yield _invalid(field, "must be the part of a resource name before the /")
        if not is_qualified_name(group):
            yield _invalid(field, "must be a name of letters, digits, '-', '_' and '.'")
    if "scoringStrategy" in args:
        yield from _strategy_faults(args["scoringStrategy"], f"{path}.scoringStrategy")


def _strategy_faults(strategy: _Object, path: str) -> Iterator[Fault]:
    kind = strategy.get("type", "")
    reader = STRATEGIES.get(kind)
    if reader is None:
        rule = f"must be one of {', '.join(STRATEGIES)}, but is {kind!r}"
        yield Fault(field=f"{path}.type", rule=rule, type=FaultType.NOT_SUPPORTED)
    yield from weight_faults(weights_of(strategy.get("resources", [])), f"{path}.resources")
    ratio, ratio_path = strategy.get("requestedToCapacityRatio"), f"{path}.requestedToCapacityRatio"
    if reader is not None and reader.takes_shape:
        if ratio is None:
            rule = f"must be given with type {kind}"
            yield Fault(field=ratio_path, rule=rule, type=FaultType.REQUIRED)
        else:
            yield from shape_faults(shape_of(ratio.get("shape", [])), f"{ratio_path}.shape")
    elif ratio is not None:
        rule = f"must not be given with a type other than {_SHAPED}"
        yield Fault(field=ratio_path, rule=rule, type=FaultType.FORBIDDEN)


def _invalid(field: str, rule: str) -> Fault:
    return Fault(field=field, rule=rule, type=FaultType.INVALID)


def _profile(profile: _Object) -> ScoringProfile:
    arguments = {config["name"]: config["args"] for config in _configs(profile)}
    fit, balanced = arguments.get(FIT, {}), arguments.get(BALANCED, {})
    plugins: list[WeightedPlugin] = []
    # Arguments of a plugin that is not built are not checked, so they must not be read either.
    if weight := _score_weight(profile.get("plugins", {}), FIT):
        fit_strategy = _fit_strategy(fit.get("scoringStrategy", {"type": "LeastAllocated"}))
        plugins.append(WeightedPlugin(strategy=fit_strategy, weight=weight))
    if weight := _score_weight(profile.get("plugins", {}), BALANCED):
        strategy = BalancedAllocation(weights=weights_of(balanced.get("resources", [])))
        plugins.append(WeightedPlugin(strategy=strategy, weight=weight))
    return ScoringProfile(
        scheduler_name=profile["schedulerName"],
        plugins=tuple(plugins),
        ignored_resources=frozenset(fit.get("ignoredResources", [])),
        ignored_resource_groups=frozenset(fit.get("ignoredResourceGroups", [])),
    )


def _configs(profile: _Object) -> list[dict[str, Any]]:
    return [{"name": "", **config} for config in profile.get("pluginConfig", [])]


def _fit_strategy(strategy: _Object) -> PluginStrategy:
    ratio = strategy.get("requestedToCapacityRatio", {})
    return STRATEGIES[strategy["type"]].read(
        weights_of(strategy.get("resources", [])), shape_of(ratio.get("shape", []))
    )


def _score_weight(plugins: _Object, name: str) -> int:
    """The weight of a plugin that scores by default; 0 when it is switched off.

    An extension point's own list wins over multiPoint, and enabled wins over disabled.
    """
    for point in ("score", "multiPoint"):
        plugin_set = plugins.get(point, {})
        for plugin in plugin_set.get("enabled", []):
            if plugin.get("name") == name:
                return plugin.get("weight", 0) or 1
        if _disables(plugin_set, name):
            return 0
    return 1


def _is_built(plugins: _Object, name: str) -> bool:
    """Whether a default plugin takes part at any extension point."""
    enabled = {
        plugin.get("name")
        for point in (*EXTENSION_POINTS, "multiPoint")
        for plugin in plugins.get(point, {}).get("enabled", [])
    }
    return name in enabled or not _disables(plugins.get("multiPoint", {}), name)


def _disables(plugin_set: _Object, name: str) -> bool:
    return any(plugin.get("name") in (name, "*") for plugin in plugin_set.get("disabled", []))
