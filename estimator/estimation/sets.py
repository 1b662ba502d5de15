"""How many whole sets of a workload of several components fit, node after node in their order.

Pure; copies what it writes to. Must not reorder nodes: another order may give another answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from estimator.estimation.filter import feasible_n
from estimator.estimation.first_fit import Walk, count_sets
from estimator.estimation.fit import room_n, without_slots
from estimator.snapshot import Snapshot
from federation.model.arrays import IntArray
from federation.model.pools.sets import alike_together
from federation.model.resources import PODS
from federation.model.workload import Component

Workload = Sequence[Component]


class FreeAmounts:
    """Free amounts that replicas are taken from, one component after the other.

    Starts from a snapshot with the ``assumed`` workloads placed, one set each; of one that does
    not fit, the part that was placed stays.
    """

    def __init__(self, snapshot: Snapshot, assumed: Sequence[Workload] = ()) -> None:
        self._snapshot = snapshot
        self._free: dict[str, IntArray] = {PODS: snapshot.free_n(PODS)}
        for workload in assumed:
            self._take_set(workload)

    def replicas_n(self, component: Component) -> IntArray:
        """Replicas of the component that still fit on each node (axis n)."""
        requirements = component.requirements
        feasible = feasible_n(self._snapshot.table, requirements.node_claim)
        return room_n(self._free_n, requirements.request, feasible)

    def sets(self, workload: Workload) -> int:
        """How many whole sets fit, one after the other; the room itself stays as it is.

        A set without replicas asks for nothing, and what asks for nothing fits as often as there
        are free pod slots.
        """
        components = alike_together(workload)
        if not components:
            return int(np.maximum(self._free[PODS], 0).sum())
        if len(components) == 1:
            # Replicas that are all alike: whichever node each is on, the others are not worse off.
            return int(self.replicas_n(components[0]).sum()) // components[0].replicas
        demands = [
            {PODS: 1, **without_slots(component.requirements.request)} for component in components
        ]
        free = {name: self._free_n(name).tolist() for demanded in demands for name in demanded}
        walks = [
            Walk(
                replicas=component.replicas,
                demands=[(free[name], amount) for name, amount in demanded.items()],
                nodes=np.flatnonzero(self.replicas_n(component)).tolist(),
            )
            for component, demanded in zip(components, demands, strict=True)
        ]
        return count_sets(walks)

    def _take_set(self, workload: Workload) -> bool:
        """Take one set; False, with the part that fitted taken, when it does not fit."""
        return all(self._take(component) for component in workload)

    def _take(self, component: Component) -> bool:
        room = self.replicas_n(component)
        before = np.cumsum(room) - room
        taken = np.clip(component.replicas - before, 0, room)
        for name, amount in without_slots(component.requirements.request).items():
            self._free[name] = self._free_n(name) - taken * amount
        self._free[PODS] = self._free_n(PODS) - taken
        return int(taken.sum()) == component.replicas

    def _free_n(self, name: str) -> IntArray:
        if name not in self._free:
            self._free[name] = self._snapshot.free_n(name)
        return self._free[name]
