"""The ledgers of a whole fleet without a store: for tests that decide by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from federation.capacity.ledger import ClusterLedger
from federation.model.reservations import Share
from federation.model.shapes import Echo


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The ledgers of a fleet's clusters, by name."""

    clusters: Mapping[str, ClusterLedger] = field(default_factory=dict)

    def of(self, cluster: str) -> ClusterLedger:
        """The ledger of a cluster, empty where nothing was ever reserved."""
        return self.clusters.get(cluster) or ClusterLedger(cluster=cluster)

    def decided(
        self,
        binding: str,
        decision: str,
        shares: Mapping[str, Sequence[Share]],
        adopted: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Ledger:
        """With a decision's shares by cluster; clusters it leaves out let go of the binding."""
        changed = {
            name: self.of(name).decided(binding, decision, given, (adopted or {}).get(name))
            for name, given in shares.items()
        }
        left = {
            name: ledger.released(binding)
            for name, ledger in self.clusters.items()
            if ledger.of_binding(binding) and name not in shares
        }
        return Ledger(clusters={**self.clusters, **changed, **left})

    def released(self, binding: str) -> Ledger:
        """Without the binding, in every cluster."""
        return self.decided(binding, "", {})

    def reported(self, cluster: str, interest_version: int, echoes: Iterable[Echo]) -> Ledger:
        """With the echoes of a cluster's newest report."""
        ledger = self.of(cluster).reported(interest_version, echoes)
        return Ledger(clusters={**self.clusters, cluster: ledger})

    def clusters_of(self, binding: str) -> list[str]:
        """Where a binding has reservations."""
        return [name for name, each in self.clusters.items() if each.of_binding(binding)]
