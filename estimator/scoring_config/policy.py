"""The legacy scheduler Policy (removed in Kubernetes 1.23), translated into a profile.

Must not filter: predicates, extenders and the priorities that look at labels are read past, and
the warnings say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.fit_strategies.requested_to_capacity_ratio import RequestedToCapacityRatio
from estimator.binpack.profile import ScoringProfile, WeightedPlugin
from estimator.binpack.strategy import PluginStrategy, ResourceWeight, ShapePoint
from estimator.scoring_config.documents import (
    Fault,
    Faults,
    FaultType,
    InvalidConfiguration,
    Stage,
    boolean,
    int32,
    int64,
    list_of,
    load_strict_document,
    raw,
    string,
    struct,
)
from estimator.scoring_config.shape_rules import (
    CPU_AND_MEMORY,
    shape_faults,
    shape_of,
    weight_faults,
    weights_of,
)
from federation.model.resources import CPU, MEMORY

KIND = "Policy"
API_VERSION = "v1"

_Object = Mapping[str, Any]

# Kubernetes' pages name the argument in two ways and the resources with capitals.
_RATIO_ARGUMENTS = ("requestedToCapacityRatioArguments", "requestedToCapacityRatioArgs")
_CAPITALISED = {"CPU": CPU, "Memory": MEMORY}

_RATIO = struct(
    {
        "shape": list_of(struct({"utilization": int32, "score": int32})),
        "resources": list_of(struct({"name": string, "weight": int64})),
    }
)
_PRIORITY = struct(
    {
        "name": string,
        "weight": int64,
        "argument": struct(
            dict.fromkeys(_RATIO_ARGUMENTS, _RATIO)
            | dict.fromkeys(("serviceAntiAffinity", "labelPreference"), raw)
        ),
    }
)
_POLICY = struct(
    {
        "apiVersion": string,
        "kind": string,
        "predicates": list_of(raw),
        "priorities": list_of(_PRIORITY),
        "extenders": list_of(raw),
        "hardPodAffinitySymmetricWeight": int32,
        "alwaysCheckAllPredicates": boolean,
    }
)

_EMPTY_IS_BEST = (ShapePoint(utilization=0, score=10), ShapePoint(utilization=100, score=0))

_BUILT_IN: Mapping[str, PluginStrategy] = {
    "LeastRequestedPriority": LeastAllocated(weights=CPU_AND_MEMORY),
    "MostRequestedPriority": MostAllocated(weights=CPU_AND_MEMORY),
    "BalancedResourceAllocation": BalancedAllocation(weights=CPU_AND_MEMORY),
    "RequestedToCapacityRatioPriority": RequestedToCapacityRatio(
        weights=CPU_AND_MEMORY, shape=_EMPTY_IS_BEST
    ),
}
_DEFAULT_PRIORITIES: Sequence[_Object] = (
    {"name": "LeastRequestedPriority", "weight": 1},
    {"name": "BalancedResourceAllocation", "weight": 1},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedPolicy:
    """The profile a Policy amounts to, and what of it could not be carried over."""

    profile: ScoringProfile
    warnings: tuple[str, ...]


def read_policy(text: str) -> TranslatedPolicy:
    """Raises InvalidConfiguration with every fault of the first stage that has any."""
    return translate_policy(load_strict_document(text))


def translate_policy(document: _Object) -> TranslatedPolicy:
    """The translation of a document that is parsed already."""
    policy = _decoded(document)
    priorities = policy.get("priorities", _DEFAULT_PRIORITIES)
    faults = [fault for at, item in enumerate(priorities) for fault in _faults(item, _path(at))]
    if faults:
        raise InvalidConfiguration(Stage.VALIDATE, faults)
    warnings = [
        "a Policy was removed in Kubernetes 1.23 and is read as a KubeSchedulerConfiguration"
    ]
    warnings += [
        f"{name} is not read: only priorities that score by resources are"
        for name in ("predicates", "extenders")
        if policy.get(name)
    ]
    plugins = []
    for at, priority in enumerate(priorities):
        strategy = _strategy(priority, _path(at), warnings)
        if strategy is not None:
            plugins.append(WeightedPlugin(strategy=strategy, weight=priority["weight"]))
    profile = ScoringProfile(scheduler_name="default-scheduler", plugins=tuple(plugins))
    return TranslatedPolicy(profile=profile, warnings=tuple(warnings))


def _path(at: int) -> str:
    return f"priorities[{at}]"


def _decoded(document: _Object) -> _Object:
    faults: Faults = []
    policy: _Object = _POLICY(document, "", faults)
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if policy.get(name, expected) != expected:
            fault = Fault(field=name, rule=f"must be {expected}", type=FaultType.NOT_SUPPORTED)
            faults.append(fault)
    if faults:
        raise InvalidConfiguration(Stage.DECODE, faults)
    return policy


def _ratio(priority: _Object) -> tuple[str, _Object] | None:
    """The argument of RequestedToCapacityRatio and its name; any priority may carry one."""
    argument = priority.get("argument", {})
    return next(((name, argument[name]) for name in _RATIO_ARGUMENTS if name in argument), None)


def _faults(priority: _Object, path: str) -> Iterator[Fault]:
    if priority.get("weight", 0) <= 0:
        rule = "must be greater than 0"
        yield Fault(field=f"{path}.weight", rule=rule, type=FaultType.INVALID)
    ratio = _ratio(priority)
    if ratio is not None:
        field = f"{path}.argument.{ratio[0]}"
        yield from shape_faults(shape_of(ratio[1].get("shape", [])), f"{field}.shape")
        yield from weight_faults(weights_of(ratio[1].get("resources", [])), f"{field}.resources")


def _strategy(priority: _Object, path: str, warnings: list[str]) -> PluginStrategy | None:
    ratio = _ratio(priority)
    if ratio is not None:
        field, argument = f"{path}.argument.{ratio[0]}", ratio[1]
        weights = weights_of(argument.get("resources", []))
        return RequestedToCapacityRatio(
            weights=_lower_cased(weights, f"{field}.resources", warnings),
            shape=shape_of(argument["shape"]),
        )
    name = priority.get("name", "")
    if name not in _BUILT_IN:
        warnings.append(f"{path} ({name}) does not score by resources and is left out")
    return _BUILT_IN.get(name)


def _lower_cased(
    weights: Sequence[ResourceWeight], path: str, warnings: list[str]
) -> tuple[ResourceWeight, ...]:
    for position, item in enumerate(weights):
        if item.resource in _CAPITALISED:
            name = _CAPITALISED[item.resource]
            warnings.append(f"{path}[{position}].name {item.resource} is read as {name}")
    return tuple(
        replace(item, resource=_CAPITALISED.get(item.resource, item.resource)) for item in weights
    )
