"""The kinds the fake API server knows: names, scope, field labels, empty forms.

Must not hold objects; ``lab.kubeapi.state`` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Document = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One kind. ``blank`` is what a bookmark of it carries besides its version.

    ``fields`` maps each field label that can be selected on to its value when absent.
    """

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    fields: Mapping[str, str] = field(default_factory=dict)
    blank: Mapping[str, Any] = field(default_factory=dict)
    subresources: frozenset[str] = frozenset()
    needs_version_to_update: bool = False
    # Kept by a CustomResourceDefinition, or as such: every change of spec is another generation.
    counts_generations: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural as messages write it: leases.coordination.k8s.io, but pods."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def details(self, name: str) -> Document:
        """What a Status says of an object."""
        group = {"group": self.group} if self.group else {}
        return {"name": name, **group, "kind": self.plural}


_NODE_VERSIONS: Final = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)

PODS: Final = Resource(
    plural="pods",
    kind="Pod",
    fields={
        "spec.nodeName": "",
        "spec.restartPolicy": "",
        "spec.schedulerName": "",
        "spec.serviceAccountName": "",
        "spec.hostNetwork": "false",
        "status.phase": "",
        "status.podIP": "",
        "status.nominatedNodeName": "",
    },
    blank={"spec": {"containers": None}, "status": {}},
    subresources=frozenset({"binding", "status"}),
)
NODES: Final = Resource(
    plural="nodes",
    kind="Node",
    namespaced=False,
    fields={"spec.unschedulable": "false"},
    blank={
        "spec": {},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": dict.fromkeys(_NODE_VERSIONS, ""),
        },
    },
    subresources=frozenset({"status"}),
)
NAMESPACES: Final = Resource(plural="namespaces", kind="Namespace", namespaced=False)
LEASES: Final = Resource(
    plural="leases", kind="Lease", group="coordination.k8s.io", needs_version_to_update=True
)
EVENTS: Final = Resource(
    plural="events",
    kind="Event",
    fields=dict.fromkeys(
        (
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
            "source",
        ),
        "",
    ),
)
NEW_EVENTS: Final = Resource(plural="events", kind="Event", group="events.k8s.io")

_STATUS: Final = frozenset({"status"})
CLUSTERS: Final = Resource(
    plural="clusters",
    kind="Cluster",
    group="cluster.karmada.io",
    version="v1alpha1",
    namespaced=False,
    subresources=_STATUS,
    counts_generations=True,
)
RESOURCE_BINDINGS: Final = Resource(
    plural="resourcebindings",
    kind="ResourceBinding",
    group="work.karmada.io",
    version="v1alpha2",
    subresources=_STATUS,
    counts_generations=True,
)
CLUSTER_RESOURCE_BINDINGS: Final = Resource(
    plural="clusterresourcebindings",
    kind="ClusterResourceBinding",
    group="work.karmada.io",
    version="v1alpha2",
    namespaced=False,
    subresources=_STATUS,
    counts_generations=True,
)

RESOURCES: Final = (
    PODS,
    NODES,
    NAMESPACES,
    LEASES,
    EVENTS,
    NEW_EVENTS,
    Resource(plural="secrets", kind="Secret", fields={"type": ""}),
    Resource(plural="configmaps", kind="ConfigMap"),
    Resource(plural="serviceaccounts", kind="ServiceAccount"),
    Resource(plural="resourcequotas", kind="ResourceQuota"),
    Resource(plural="replicasets", kind="ReplicaSet", group="apps"),
    Resource(plural="deployments", kind="Deployment", group="apps"),
    Resource(plural="statefulsets", kind="StatefulSet", group="apps"),
    Resource(plural="daemonsets", kind="DaemonSet", group="apps"),
    Resource(plural="jobs", kind="Job", group="batch"),
    Resource(
        plural="priorityclasses",
        kind="PriorityClass",
        group="scheduling.k8s.io",
        namespaced=False,
    ),
    Resource(
        plural="customresourcedefinitions",
        kind="CustomResourceDefinition",
        group="apiextensions.k8s.io",
        namespaced=False,
    ),
    CLUSTERS,
    RESOURCE_BINDINGS,
    CLUSTER_RESOURCE_BINDINGS,
)
BY_PATH: Final = {(each.api_version, each.plural): each for each in RESOURCES}
BY_KIND: Final = {(each.api_version, each.kind): each for each in RESOURCES}
API_VERSIONS: Final = frozenset(each.api_version for each in RESOURCES)
