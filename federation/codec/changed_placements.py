"""Placements that policies give to bindings that were decided under others.

Must not decide which policy wins: ``federation.codec.policies`` does.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.codec.placements import read_placement
from federation.codec.policies import DEFAULT_NAMESPACE, Template, policy_for
from federation.codec.violations import Violations
from federation.model.placement import Binding, Placement
from federation.v1 import resource_pb2


class PolicyPlacements:
    """The placement that policies give to a binding; None where none of them selects its workload.

    It travels to other processes.
    """

    def __init__(self, policies: Iterable[resource_pb2.PropagationPolicy]) -> None:
        """Raises InvalidRequest with every violation."""
        self._policies = list(policies)
        found = Violations()
        self._placements = [
            read_placement(each.spec.placement, f"{each.metadata.name}.spec.placement", found)
            for each in self._policies
        ]
        found.check()

    def __call__(self, binding: Binding) -> Placement | None:
        workload = binding.resource
        template = Template(
            api_version=workload.api_version,
            kind=workload.kind,
            namespace=workload.namespace or binding.namespace or DEFAULT_NAMESPACE,
            name=workload.name,
            labels=binding.labels,
        )
        policy = policy_for(template, self._policies)
        return None if policy is None else self._placements[self._policies.index(policy)]
