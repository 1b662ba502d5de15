"""The demand of a binding: replicas, a whole component set, or an object without pods.

Must not look at clusters, except to convert columns into units of the demand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from federation.model.arrays import BoolArray, IntArray, read_only
from federation.model.placement import Binding, SpreadConstraint, SpreadField
from federation.model.workload import ReplicaRequirements
from federation.scheduler.division.values import DivisionRule, DivisionStrategy
from federation.scheduler.selection.spread import Need

_ONE_CLUSTER = SpreadConstraint(by=SpreadField.CLUSTER, min_groups=1, max_groups=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """``units`` to divide by ``rule``; a unit is ``unit_replicas`` replicas.

    A workload of several components is a demand for one set in each selected cluster, and is never
    split. An object without pods has no units and ``keeps_empty``: it goes to all selected
    clusters. A ``partial`` placement has at least ``least`` units.
    """

    units: int
    unit_replicas: int
    rule: DivisionRule
    constraints: tuple[SpreadConstraint, ...]
    partial: bool
    least: int = 1
    in_sets: bool = False
    keeps_empty: bool = False

    @classmethod
    def of(cls, binding: Binding) -> Demand:
        placement = binding.placement
        constraints = placement.spread_constraints
        whole = DivisionRule(strategy=DivisionStrategy.DUPLICATED)
        if binding.components:
            if all(constraint.by is not SpreadField.CLUSTER for constraint in constraints):
                constraints = (*constraints, _ONE_CLUSTER)
            return cls(
                units=1,
                unit_replicas=sum(component.replicas for component in binding.components),
                rule=whole,
                constraints=constraints,
                partial=placement.partial,
                in_sets=True,
            )
        if not binding.replicas and binding.requirements == ReplicaRequirements():
            return cls(
                units=0,
                unit_replicas=1,
                rule=whole,
                constraints=constraints,
                partial=False,
                keeps_empty=True,
            )
        rule = DivisionRule.of(placement.replica_scheduling, fresh=binding.fresh)
        if rule.strategy is DivisionStrategy.STATIC_WEIGHT:
            # As in Karmada: static weights select their clusters themselves.
            constraints = ()
        return cls(
            units=binding.replicas,
            unit_replicas=1,
            rule=rule,
            constraints=constraints,
            partial=placement.partial,
            least=binding.min_available or 1,
        )

    @property
    def is_whole(self) -> bool:
        """Return whether each selected cluster gets all units."""
        return self.rule.strategy is DivisionStrategy.DUPLICATED

    @property
    def need(self) -> Need:
        """Return the capacity that a selection of clusters must have."""
        return Need(
            replicas=self.units, heeds_capacity=self.rule.heeds_capacity, partial=self.partial
        )

    @property
    def is_ranked(self) -> bool:
        """Return whether the order of the candidates can change the answer."""
        return bool(self.constraints) or self.rule.strategy in {
            DivisionStrategy.AGGREGATED,
            DivisionStrategy.FILL_FIRST,
        }

    def prior_units(self, prior_c: IntArray, placed_c: BoolArray) -> IntArray:
        """Convert placed replicas into units (axis c): a cluster has one set, or none."""
        return read_only(placed_c.astype(np.int64)) if self.in_sets else prior_c
