"""Namespace quotas, from messages and back.

Must not know what is held.
"""

from __future__ import annotations

from collections.abc import Mapping

from federation.codec.ranges import MAX_INT64, whole
from federation.codec.requirements import quantities_of, read_amounts
from federation.codec.rules import check_rules
from federation.codec.violations import Violations
from federation.model.namespace_quotas import REPLICAS, NamespaceQuota
from federation.v1 import access_pb2


def quota_from_message(message: access_pb2.Quota, path: str, found: Violations) -> NamespaceQuota:
    """What is used is passed over."""
    check_rules(message, path, found)
    limits = read_amounts(message.resources, f"{path}.resources", found)
    for name, limit in limits.items():
        whole(limit, f"{path}.resources[{name}]", found, least=0, most=MAX_INT64)
    if message.HasField("replicas"):
        limits[REPLICAS] = message.replicas
    return NamespaceQuota(namespace=message.namespace, limits=limits)


def quota_to_message(quota: NamespaceQuota, used: Mapping[str, int]) -> access_pb2.Quota:
    """With what is held of what has a limit."""
    resources = {name: limit for name, limit in quota.limits.items() if name != REPLICAS}
    return access_pb2.Quota(
        namespace=quota.namespace,
        replicas=quota.limits.get(REPLICAS),
        resources=quantities_of(resources),
        used_replicas=min(used.get(REPLICAS, 0), MAX_INT64),
        used_resources=quantities_of({name: used.get(name, 0) for name in resources}),
    )
