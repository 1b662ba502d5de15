"""What a binding asks clusters to hold: replicas, whole component sets, or an object without pods.

Must not look at clusters beyond the columns it turns into the units of the demand.
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
    """``units`` to divide by ``rule``, each worth ``unit_replicas`` replicas.

    A workload of several components is a demand for one set in each selected cluster: it is never
    torn apart. An object without pods is selected for with no units at all and ``keeps_empty``.
    A ``partial`` placement has at least ``least`` units.
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
            # Static weights name their clusters themselves: Karmada's rule.
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
        """Whether each selected cluster gets all of it."""
        return self.rule.strategy is DivisionStrategy.DUPLICATED

    @property
    def need(self) -> Need:
        """What a selection of clusters must hold."""
        return Need(
            replicas=self.units, heeds_capacity=self.rule.heeds_capacity, partial=self.partial
        )

    @property
    def is_ranked(self) -> bool:
        """Whether the order of the candidates can change the answer."""
        return bool(self.constraints) or self.rule.strategy in {
            DivisionStrategy.AGGREGATED,
            DivisionStrategy.FILL_FIRST,
        }

    def prior_units(self, prior_c: IntArray, placed_c: BoolArray) -> IntArray:
        """What is already placed, in units: a set is there or is not."""
        return read_only(placed_c.astype(np.int64)) if self.in_sets else prior_c
