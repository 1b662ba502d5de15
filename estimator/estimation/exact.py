"""Exact answers about one cluster at one instant: its nodes, its quotas, and nothing guessed.

Pure; may be asked in any thread. Must not know who asks, nor what was promised elsewhere: what is
to be deducted comes with the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from estimator.estimation.fit import replicas_n
from estimator.estimation.quota import Quota, sets_allowed
from estimator.estimation.sets import FreeAmounts, Workload
from estimator.nodes import Node
from estimator.snapshot import NodeTable, Snapshot
from federation.model.estimate import MAX_REPLICAS
from federation.model.workload import Component, ReplicaRequirements


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactEstimates:
    """What is asked of a snapshot, with the quotas of the same instant. Answers are capped at
    MAX_REPLICAS; ``assumed`` workloads are placed first, one set each.
    """

    snapshot: Snapshot
    quotas: tuple[Quota, ...] = ()

    @classmethod
    def of_empty_nodes(cls, allocatable: Iterable[Mapping[str, int]]) -> ExactEstimates:
        """Nodes with nothing on them and nothing to tell them apart by."""
        nodes = (Node(name="", allocatable=amounts) for amounts in allocatable)
        return cls(snapshot=Snapshot(table=NodeTable.of(nodes), requested={}))

    def replicas(self, requirements: ReplicaRequirements, assumed: Sequence[Workload] = ()) -> int:
        """How many replicas fit on the nodes and into the quotas of their namespace."""
        return self.replicas_of_each([requirements], assumed)[0]

    def replicas_of_each(
        self, shapes: Sequence[ReplicaRequirements], assumed: Sequence[Workload] = ()
    ) -> list[int]:
        """The same for each shape by itself, with the assumed workloads placed only once."""
        room = FreeAmounts(self.snapshot, assumed) if assumed else None
        answers = []
        for requirements in shapes:
            one = Component(name="", replicas=1, requirements=requirements)
            allowed = sets_allowed(self.quotas, [one], assumed)
            fitting_n = (
                replicas_n(self.snapshot, requirements) if room is None else room.replicas_n(one)
            )
            answers.append(min(int(fitting_n.sum()), allowed, MAX_REPLICAS))
        return answers

    def sets(self, workload: Workload, assumed: Sequence[Workload] = ()) -> int:
        """How many whole sets fit, first fit on the nodes in their order."""
        allowed = sets_allowed(self.quotas, workload, assumed)
        return min(FreeAmounts(self.snapshot, assumed).sets(workload), allowed, MAX_REPLICAS)
