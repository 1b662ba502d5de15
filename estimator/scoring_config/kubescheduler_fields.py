"""The fields of KubeSchedulerConfiguration v1 and of the plugin arguments it knows.

Must not hold defaults or rules: those are applied to the decoded document.
"""

from __future__ import annotations

from collections.abc import Mapping

from estimator.scoring_config.fields import (
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
