"""The rules of KubeSchedulerConfiguration v1, on a decoded and defaulted document.

Must not decode or default. The order of the faults is kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from estimator.scoring_config.documents import (
    Fault,
    FaultType,
    Reader,
    boolean,
    duration,
    int32,
    int64,
    list_of,
    number,
    raw,
    string,
    struct,
)
from federation.model.resources import is_extended

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"

FIT = "NodeResourcesFit"
BALANCED = "NodeResourcesBalancedAllocation"

EXTENSION_POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)

_TYPE_META: Mapping[str, Reader] = {"apiVersion": string, "kind": string}

_RESOURCES = list_of(struct({"name": string, "weight": int64}))
_SHAPE = list_of(struct({"utilization": int32, "score": int32}))
_PLUGINS = list_of(struct({"name": string, "weight": int32}))
_PLUGIN_SET = struct({"enabled": _PLUGINS, "disabled": _PLUGINS})

_EXTENDER = struct(
    {
        "urlPrefix": string,
        "filterVerb": string,
        "preemptVerb": string,
        "prioritizeVerb": string,
        "weight": int64,
        "bindVerb": string,
        "enableHTTPS": boolean,
        "tlsConfig": struct(
            {
                "insecure": boolean,
                "serverName": string,
                "certFile": string,
                "keyFile": string,
                "caFile": string,
                "certData": string,
                "keyData": string,
                "caData": string,
            }
        ),
        "httpTimeout": duration,
        "nodeCacheCapable": boolean,
        "managedResources": list_of(struct({"name": string, "ignoredByScheduler": boolean})),
        "ignorable": boolean,
    }
)

_PROFILE = struct(
    {
        "schedulerName": string,
        "percentageOfNodesToScore": int32,
        "plugins": struct(
            dict.fromkeys(
                (
                    *EXTENSION_POINTS,
                    "multiPoint",
                    "placementGenerate",
                    "placementScore",
                    "placementFeasible",
                    "podGroupPostFilter",
                ),
                _PLUGIN_SET,
            )
        ),
        "pluginConfig": list_of(struct({"name": string, "args": raw})),
    }
)

CONFIGURATION: Reader = struct(
    {
        **_TYPE_META,
        "parallelism": int32,
        "leaderElection": struct(
            {
                "leaderElect": boolean,
                "leaseDuration": duration,
                "renewDeadline": duration,
                "retryPeriod": duration,
                "resourceLock": string,
                "resourceName": string,
                "resourceNamespace": string,
            }
        ),
        "clientConnection": struct(
            {
                "kubeconfig": string,
                "acceptContentTypes": string,
                "contentType": string,
                "qps": number,
                "burst": int32,
            }
        ),
        "enableProfiling": boolean,
        "enableContentionProfiling": boolean,
        "percentageOfNodesToScore": int32,
        "podInitialBackoffSeconds": int64,
        "podMaxBackoffSeconds": int64,
        "profiles": list_of(_PROFILE),
        "extenders": list_of(_EXTENDER),
        "delayCacheUntilActive": boolean,
    }
)

# By plugin name. The arguments of any other plugin are its own business and kept as they are.
PLUGIN_ARGUMENTS: Mapping[str, Reader] = {
    "DefaultPreemption": struct(
        {**_TYPE_META, "minCandidateNodesPercentage": int32, "minCandidateNodesAbsolute": int32}
    ),
    "InterPodAffinity": struct(
        {
            **_TYPE_META,
            "hardPodAffinityWeight": int32,
            "ignorePreferredTermsOfExistingPods": boolean,
        }
    ),
    "NodeAffinity": struct({**_TYPE_META, "addedAffinity": raw}),
    FIT: struct(
        {
            **_TYPE_META,
            "ignoredResources": list_of(string),
            "ignoredResourceGroups": list_of(string),
            "scoringStrategy": struct(
                {
                    "type": string,
                    "resources": _RESOURCES,
                    "requestedToCapacityRatio": struct({"shape": _SHAPE}),
                }
            ),
        }
    ),
    BALANCED: struct({**_TYPE_META, "resources": _RESOURCES}),
    "PodTopologySpread": struct(
        {**_TYPE_META, "defaultConstraints": list_of(raw), "defaultingType": string}
    ),
    "VolumeBinding": struct({**_TYPE_META, "bindTimeoutSeconds": int64, "shape": _SHAPE}),
    "DynamicResources": struct(
        {**_TYPE_META, "filterTimeout": duration, "bindingTimeout": duration}
    ),
}

_Object = Mapping[str, Any]

# Volume-limit plugins of single clouds, removed from kube-scheduler.
_REMOVED_PLUGINS = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})


def configuration_faults(document: _Object) -> Iterator[Fault]:
    """Everything kube-scheduler checks before it builds a plugin."""
    if document.get("clientConnection", {}).get("burst", 0) < 0:
        yield _invalid("clientConnection.burst", "must be at least 0")
    yield from _leader_election_faults(document["leaderElection"])
    if document["parallelism"] <= 0:
        yield _invalid("parallelism", "must be greater than 0")
    yield from _profiles_faults(document["profiles"])
    yield from _percentage_faults(document, "")
    if document["podInitialBackoffSeconds"] <= 0:
        yield _invalid("podInitialBackoffSeconds", "must be greater than 0")
    if document["podMaxBackoffSeconds"] < document["podInitialBackoffSeconds"]:
        yield _invalid("podMaxBackoffSeconds", "must be at least podInitialBackoffSeconds")
    yield from _extenders_faults(document.get("extenders", []))


def _leader_election_faults(election: _Object) -> Iterator[Fault]:
    if not election["leaderElect"]:
        return
    for name in ("leaseDuration", "renewDeadline", "retryPeriod"):
        if election[name] <= 0:
            yield _invalid(f"leaderElection.{name}", "must be greater than 0")
    if election["leaseDuration"] <= election["renewDeadline"]:
        yield _invalid("leaderElection.leaseDuration", "must be greater than renewDeadline")
    if election["resourceLock"] != "leases":
        yield _invalid("leaderElection.resourceLock", 'must be "leases"')


def _profiles_faults(profiles: Sequence[_Object]) -> Iterator[Fault]:
    first_use: dict[str, int] = {}
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}]"
        name = profile.get("schedulerName", "")
        if not name:
            rule = "must be given as soon as there are several profiles"
            yield Fault(field=f"{path}.schedulerName", rule=rule, type=FaultType.REQUIRED)
        yield from _percentage_faults(profile, f"{path}.")
        yield from _removed_plugin_faults(profile.get("plugins", {}), f"{path}.plugins")
        yield from _plugin_config_faults(profile.get("pluginConfig", []), f"{path}.pluginConfig")
        if name in first_use:
            rule = f"is the name of profiles[{first_use[name]}] already"
            yield Fault(field=f"{path}.schedulerName", rule=rule, type=FaultType.DUPLICATE)
        first_use[name] = index
    yield from _queue_sort_faults(profiles)


def _percentage_faults(owner: _Object, prefix: str) -> Iterator[Fault]:
    if not 0 <= owner.get("percentageOfNodesToScore", 0) <= 100:
        yield _invalid(f"{prefix}percentageOfNodesToScore", "must be from 0 to 100")


def _removed_plugin_faults(plugins: _Object, path: str) -> Iterator[Fault]:
    for point in EXTENSION_POINTS:
        for index, plugin in enumerate(plugins.get(point, {}).get("enabled", [])):
            if plugin.get("name") in _REMOVED_PLUGINS:
                yield _invalid(f"{path}.{point}.enabled[{index}]", "names a removed plugin")


def _plugin_config_faults(configs: Sequence[_Object], path: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, config in enumerate(configs):
        field, name = f"{path}[{index}]", config.get("name", "")
        if name in seen:
            rule = f"configures {name} a second time"
            yield Fault(field=field, rule=rule, type=FaultType.DUPLICATE)
        seen.add(name)
        if name in _REMOVED_PLUGINS:
            yield _invalid(field, "names a removed plugin")
        elif name in _ARGUMENT_RULES:
            yield from _ARGUMENT_RULES[name](config["args"], f"{field}.args")


def _balanced_faults(args: _Object, path: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for index, item in enumerate(args.get("resources", [])):
        field, name = f"{path}.resources[{index}]", item.get("name", "")
        if name in seen:
            rule = f"names {name!r} a second time"
            yield Fault(field=f"{field}.name", rule=rule, type=FaultType.DUPLICATE)
        seen.add(name)
        if (item.get("weight", 0) or 1) != 1:
            yield _invalid(f"{field}.weight", "must be 1")


def _preemption_faults(args: _Object, path: str) -> Iterator[Fault]:
    percentage = args.get("minCandidateNodesPercentage", 10)
    absolute = args.get("minCandidateNodesAbsolute", 100)
    if not 0 <= percentage <= 100:
        yield _invalid(f"{path}.minCandidateNodesPercentage", "must be from 0 to 100")
    if absolute < 0:
        yield _invalid(f"{path}.minCandidateNodesAbsolute", "must be at least 0")
    if percentage == absolute == 0:
        for name in ("minCandidateNodesPercentage", "minCandidateNodesAbsolute"):
            yield _invalid(f"{path}.{name}", "percentage and absolute must not both be 0")


def _affinity_faults(args: _Object, path: str) -> Iterator[Fault]:
    if not 0 <= args.get("hardPodAffinityWeight", 1) <= 100:
        yield _invalid(f"{path}.hardPodAffinityWeight", "must be from 0 to 100")


def _spread_faults(args: _Object, path: str) -> Iterator[Fault]:
    kind = args.get("defaultingType") or "System"
    field = f"{path}.defaultingType"
    if kind not in ("System", "List"):
        yield Fault(field=field, rule="must be System or List", type=FaultType.NOT_SUPPORTED)
    elif kind == "System" and args.get("defaultConstraints"):
        yield _invalid(field, "must be List when there are defaultConstraints")


def _volume_binding_faults(args: _Object, path: str) -> Iterator[Fault]:
    if args.get("bindTimeoutSeconds", 600) < 0:
        yield _invalid(f"{path}.bindTimeoutSeconds", "must be at least 0")
    if args.get("shape"):
        yield _invalid(f"{path}.shape", "needs the feature gate StorageCapacityScoring")


_ARGUMENT_RULES = {
    BALANCED: _balanced_faults,
    "DefaultPreemption": _preemption_faults,
    "InterPodAffinity": _affinity_faults,
    "PodTopologySpread": _spread_faults,
    "VolumeBinding": _volume_binding_faults,
}


def _queue_sort_faults(profiles: Sequence[_Object]) -> Iterator[Fault]:
    """One queue serves all profiles, so they must agree on how it is sorted."""
    common = _queue_sort(profiles[0])
    if len(common["enabled"]) > 1:
        # Upstream writes this one field with a capital; paths are compared, so we do too.
        yield _invalid("profiles[0].plugins.queueSort.Enabled", "must be a single plugin")
    name = common["enabled"][0]["name"] if common["enabled"] else None
    common_args = _arguments(profiles[0], name)
    for index, profile in enumerate(profiles[1:], start=1):
        if _queue_sort(profile) != common:
            rule = "must be the same in all profiles"
            yield _invalid(f"profiles[{index}].plugins.queueSort", rule)
        args = _arguments(profile, name)
        if args is not None and args != common_args:
            rule = "must be the same in all profiles for the plugin that sorts the queue"
            yield _invalid(f"profiles[{index}].pluginConfig.args", rule)


def _queue_sort(profile: _Object) -> dict[str, list[dict[str, Any]]]:
    plugins = profile.get("plugins", {}).get("queueSort", {})
    return {
        "enabled": [
            {"name": plugin.get("name", ""), "weight": plugin.get("weight", 0)}
            for plugin in plugins.get("enabled", [])
        ],
        # A weight means nothing here, and is dropped upstream before the comparison.
        "disabled": [{"name": plugin.get("name", "")} for plugin in plugins.get("disabled", [])],
    }


def _arguments(profile: _Object, name: str | None) -> Any:
    """The last arguments given for the plugin; None if there are none."""
    configs = [config for config in profile.get("pluginConfig", []) if config.get("name") == name]
    return configs[-1]["args"] if configs and name else None


def _extenders_faults(extenders: Sequence[_Object]) -> Iterator[Fault]:
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        if extender.get("prioritizeVerb") and extender.get("weight", 0) <= 0:
            yield _invalid(f"{path}.weight", "must be greater than 0 with a prioritizeVerb")
        for position, resource in enumerate(extender.get("managedResources", [])):
            field, name = f"{path}.managedResources[{position}].name", resource.get("name", "")
            if not is_extended(name):
                yield _invalid(field, "must be an extended resource such as example.com/device")
            if name in managed:
                yield _invalid(field, f"{name} is managed by an extender already")
            managed.add(name)
    if sum(bool(extender.get("bindVerb")) for extender in extenders) > 1:
        yield _invalid("extenders", "at most one may have a bindVerb")


def _invalid(field: str, rule: str) -> Fault:
    return Fault(field=field, rule=rule, type=FaultType.INVALID)
