"""Propagation policies: which one a workload falls under.

Holds Karmada's order among policies. Must not read workloads: a Template is all it sees of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from federation.codec import selectors
from federation.codec.rules import check_rules
from federation.codec.violations import Violations
from federation.model.selectors import matches_labels, matches_requirements
from federation.v1 import resource_pb2

# Kubernetes' namespace for what is namespaced and does not say so.
DEFAULT_NAMESPACE = "default"

# How closely a selector names a workload; 0 is not at all.
_MATCHES_ALL, _MATCHES_LABELS, _MATCHES_NAME = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What policies look at in an object that is to be propagated."""

    api_version: str
    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        return f"{self.kind}/{self.name}"


def policy_for(
    template: Template, policies: Iterable[resource_pb2.PropagationPolicy]
) -> resource_pb2.PropagationPolicy | None:
    """The policy that wins: namespaced before cluster-wide, then by priority, then by how closely
    a selector names the workload, then by name.
    """
    ranked = [
        (is_cluster_wide(policy), -policy.spec.priority, -closeness, policy.metadata.name, policy)
        for policy in policies
        if (closeness := _closeness(template, policy))
    ]
    return min(ranked, key=lambda each: each[:4])[4] if ranked else None


def is_cluster_wide(policy: resource_pb2.PropagationPolicy) -> bool:
    return policy.kind == "ClusterPropagationPolicy"


def _closeness(template: Template, policy: resource_pb2.PropagationPolicy) -> int:
    namespace = policy.metadata.namespace or DEFAULT_NAMESPACE
    if not is_cluster_wide(policy) and namespace != template.namespace:
        return 0
    return max((_match(template, each) for each in policy.spec.resource_selectors), default=0)


def _match(template: Template, selector: resource_pb2.ResourceSelector) -> int:
    if (selector.api_version, selector.kind) != (template.api_version, template.kind):
        return 0
    if selector.namespace not in ("", template.namespace):
        return 0
    if selector.name:
        return _MATCHES_NAME if selector.name == template.name else 0
    if not selector.HasField("label_selector"):
        return _MATCHES_ALL
    return _MATCHES_LABELS if _labels_match(template, selector.label_selector) else 0


def _labels_match(template: Template, selector: resource_pb2.LabelSelector) -> bool:
    requirements = selectors.label_requirements(
        selector.match_expressions, "matchExpressions", Violations()
    )
    return matches_labels(selector.match_labels, template.labels) and matches_requirements(
        requirements, template.labels
    )


def check_policy(message: resource_pb2.PropagationPolicy, path: str, found: Violations) -> None:
    """Finds what makes a policy useless here; its placement is read with each binding."""
    check_rules(message.spec, f"{path}.spec", found)
    for position, selector in enumerate(message.spec.resource_selectors):
        here = f"{path}.spec.resourceSelectors[{position}]"
        selectors.label_requirements(
            selector.label_selector.match_expressions,
            f"{here}.labelSelector.matchExpressions",
            found,
        )
