"""Replicas that are taken back where their pods find no node: what is decided of their binding.

Plain values and functions. Must not choose what is taken back: failover does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from federation.failover.moves import PODS_PENDING, with_evictions
from federation.model.errors import PreconditionFailed
from federation.model.estimate import Estimates
from federation.model.placement import Binding, EvictionTask
from federation.model.readable import plural
from federation.model.reasons import Reason, stored_reason
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Retaking:
    """The binding loses replicas that run nowhere, ``lost`` by cluster, and gets as many elsewhere,
    or stays as it is. ``why`` by the same clusters.
    """

    lost: Mapping[str, int]
    why: Mapping[str, str]

    @property
    def triggers(self) -> tuple[Reason, ...]:
        return tuple(map(stored_reason, self.why.values()))

    def candidate(self, binding: Binding) -> Binding:
        """As it is. Raises PreconditionFailed where it has fewer there by now."""
        had = {each.name: each.replicas for each in binding.clusters}
        for name, replicas in self.lost.items():
            if had.get(name, 0) < replicas:
                text = f"it has {plural(had.get(name, 0), 'replica')} in {name} by now"
                raise PreconditionFailed(text, reason="NOT_FEASIBLE")
        return binding

    def whole(self, binding: Binding) -> Binding:
        """What the cycle decides: it runs on what is left, and may grow elsewhere."""
        return replace(binding, clusters=self._left(binding))

    def within(self, available: Estimates, positions: Mapping[str, int]) -> Estimates:
        """What the binding may use: nothing more in these clusters."""
        replicas_c = available.replicas_c.copy()
        for name in self.lost:
            if name in positions:
                replicas_c[positions[name]] = 0
        return replace(available, replicas_c=replicas_c)

    def check(self, binding: Binding, decision: Decision) -> None:
        """Raises PreconditionFailed where not all of what is lost has room elsewhere."""
        after = {each.name: each.replicas for each in decision.clusters}
        left = {each.name: each.replicas for each in self._left(binding)}
        if any(after.get(name, 0) > left.get(name, 0) for name in self.lost):
            text = "it would be divided as before"
            raise PreconditionFailed(text, reason="NOT_FEASIBLE")
        kept = all(after.get(name, 0) >= replicas for name, replicas in left.items())
        if not kept or sum(after.values()) < sum(each.replicas for each in binding.clusters):
            raise PreconditionFailed("nothing else has room for it", reason="NOT_FEASIBLE")

    def evictions(
        self, before: Binding, placed: Iterable[TargetCluster], now: float
    ) -> tuple[EvictionTask, ...]:
        """The binding's tasks once it is placed there: while one stands it does not go back."""
        return with_evictions(before, PODS_PENDING, self.why, placed, now)

    def _left(self, binding: Binding) -> tuple[TargetCluster, ...]:
        left = (
            replace(each, replicas=each.replicas - self.lost.get(each.name, 0))
            for each in binding.clusters
        )
        return tuple(each for each in left if each.replicas > 0)
