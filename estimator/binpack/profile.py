"""Several plugins together, weighted and added, as a kube-scheduler profile scores.

Must not stand for the plugins that look at labels, images or other pods.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.strategy import PluginStrategy, ResourceColumn
from federation.model.arrays import IntArray
from federation.model.resources import is_extended


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedPlugin:
    """One plugin's strategy and how often its 0-100 count in the sum."""

    strategy: PluginStrategy
    weight: int

    def has_a_say(self, request: ReplicaRequest) -> bool:
        """Whether the plugin scores this replica at all."""
        strategy = self.strategy
        return not isinstance(strategy, BalancedAllocation) or strategy.applies_to(request)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringProfile:
    """The strategies for pods that name ``scheduler_name``."""

    scheduler_name: str
    plugins: tuple[WeightedPlugin, ...]
    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.scheduler_name

    def ignores(self, resource: str) -> bool:
        """Whether the filter overlooks a shortage of it. Scoring knows no such exception."""
        group = resource.partition("/")[0]
        return is_extended(resource) and (
            resource in self.ignored_resources or group in self.ignored_resource_groups
        )

    @property
    def resources(self) -> frozenset[str]:
        return frozenset().union(*(plugin.strategy.resources for plugin in self.plugins))

    def most(self, request: ReplicaRequest) -> float:
        return sum(
            plugin.weight * plugin.strategy.most(request)
            for plugin in self.plugins
            if plugin.has_a_say(request)
        )

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> IntArray:
        total_n = np.zeros(nodes.size, dtype=np.int64)
        for plugin in self.plugins:
            if plugin.has_a_say(request):
                total_n += plugin.weight * plugin.strategy.score(nodes, request)
        return total_n

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        return tuple(
            column
            for plugin in self.plugins
            if plugin.has_a_say(request)
            for column in plugin.strategy.columns(nodes, request)
        )
