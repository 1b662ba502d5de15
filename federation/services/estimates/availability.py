"""How many replicas of a shape still fit, and where: from memory, and from agents when asked for.

Must not wait for the store, nor longer for agents than the caller does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_estimates import estimate_sets
from federation.capacity.fleet_reports import FleetCapacity
from federation.model.estimate import Bound, EstimateOptions, Estimates, Merge, Source, improved
from federation.model.workload import Component, ReplicaRequirements
from federation.services.agent_ports import AgentEstimates
from federation.services.estimates.exact import ask_agents
from federation.services.fleet.known_estimates import KnownEstimates, PromisedByPosition
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.snapshot import FleetSnapshot, check_named
from federation.services.ports import Clock
from federation.services.threads import ESTIMATING
from federation.services.values import EstimateAnswer, ExactQuestion

# Fewer than all of these take less than 5 ms: not worth a thread.
SHAPES_PER_THREAD = 50
NUMBERS_PER_THREAD = 50_000
# Beside promises so many cells are looked through in less than 5 ms. What need not go to a thread
# stays here: beside a busy loop it would wait for its turn at every step.
PROMISED_CELLS_PER_THREAD = 30_000
# Beside each cluster that reported there are about two where something else is promised.
CHANGES_A_REPORT = 3
# Promises in a cluster without cells are gone through one by one.
CELLS_FOR_A_BLIND_CLUSTER = 300
# No agent is waited for longer, however long the caller would.
EXACT_SECONDS = 3.0


class EstimatedFleet(Protocol):
    """A fleet at one instant, as far as estimates go; what is ``outstanding`` is by position, and
    ``reported`` are the cells as reports have them.
    """

    @property
    def generation(self) -> str: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def positions(self) -> Mapping[str, int]: ...
    @property
    def capacity(self) -> FleetCapacity: ...
    @property
    def reported(self) -> FleetCells: ...
    @property
    def outstanding(self) -> PromisedByPosition: ...


class Availability:
    """Estimates on the newest snapshot."""

    def __init__(self, fleet: FleetOwner, agents: AgentEstimates, clock: Clock) -> None:
        self._fleet = fleet
        self._agents = agents
        self._clock = clock
        self._known = fleet.known_estimates
        # How many numbers each level has answered, by ``Source`` and ``Bound``.
        self.answered = np.zeros((len(Source), len(Bound)), dtype=np.int64)

    def cluster_count(self) -> int:
        """How many clusters are meant when none are named."""
        return self._fleet.size

    def cluster_names(self) -> Sequence[str]:
        return self._fleet.snapshot.names

    async def estimate(
        self,
        shapes: Sequence[ReplicaRequirements],
        clusters: Sequence[str] | None,
        options: EstimateOptions,
        timeout_seconds: float = EXACT_SECONDS,
    ) -> EstimateAnswer:
        """Every shape for the clusters in the order named; None or none named: the whole fleet.

        When ``exact`` may answer, the clusters' agents have ``timeout_seconds`` for it. Raises
        InvalidRequest for names that are not in the fleet.
        """
        snapshot, now = self._fleet.snapshot, self._clock.now()
        amounts = sum(max(1, len(each.request)) for each in shapes)
        numbers = amounts * len(clusters or snapshot.names)
        is_quick = len(shapes) < SHAPES_PER_THREAD and numbers < NUMBERS_PER_THREAD
        if is_quick and self._cells_beside(snapshot, shapes, options) < PROMISED_CELLS_PER_THREAD:
            found = answer(snapshot, self._known, shapes, clusters, options, now)
        else:
            found = await ESTIMATING.run(
                answer, snapshot, self._known, shapes, clusters, options, now
            )
        if options.highest < Source.EXACT:
            return self._counted(found)
        question = ExactQuestion(shapes=tuple(shapes))
        return await self._with_exact(found, snapshot, question, options.merge, timeout_seconds)

    async def estimate_sets(
        self,
        components: Sequence[Component],
        clusters: Sequence[str] | None,
        options: EstimateOptions,
        timeout_seconds: float = EXACT_SECONDS,
    ) -> EstimateAnswer:
        """Whole sets of one workload's components, as ``estimate`` otherwise."""
        snapshot, now = self._fleet.snapshot, self._clock.now()
        found = await ESTIMATING.run(
            answer_sets, snapshot, self._known, components, clusters, options, now
        )
        if options.highest < Source.EXACT:
            return self._counted(found)
        question = ExactQuestion(components=tuple(components))
        return await self._with_exact(found, snapshot, question, options.merge, timeout_seconds)

    def _cells_beside(
        self,
        snapshot: FleetSnapshot,
        shapes: Sequence[ReplicaRequirements],
        options: EstimateOptions,
    ) -> float:
        """How many cells are looked through beside promises; where there are none, what takes as
        long as so many.
        """
        promised = list(snapshot.outstanding)
        if not promised:
            return 0
        if options.highest < Source.POOLS:
            return len(shapes) * len(promised) * CELLS_FOR_A_BLIND_CLUSTER
        cells_c = snapshot.rooms.cells_c
        blind = len(promised) - np.count_nonzero(cells_c[promised])
        reported = snapshot.rooms.reported
        changed = sum(self._known.share_changed(reported, each) for each in shapes)
        in_cells = int(cells_c.sum()) * min(len(shapes), CHANGES_A_REPORT * changed)
        return in_cells + len(shapes) * int(blind) * CELLS_FOR_A_BLIND_CLUSTER

    async def _with_exact(
        self,
        found: EstimateAnswer,
        snapshot: FleetSnapshot,
        question: ExactQuestion,
        rule: Merge,
        timeout_seconds: float,
    ) -> EstimateAnswer:
        """The answer with what agents say where they say something in time."""
        exact = await ask_agents(
            self._agents,
            found.names,
            question,
            min(timeout_seconds, EXACT_SECONDS),
            {snapshot.names[c]: each for c, each in snapshot.outstanding.items()},
        )
        return self._counted(
            replace(
                found,
                estimates=tuple(
                    improved(estimates, exact.level(position), rule)
                    for position, estimates in enumerate(found.estimates)
                ),
            )
        )

    def _counted(self, answer: EstimateAnswer) -> EstimateAnswer:
        self.answered += counted(answer)
        return answer


def counted(answer: EstimateAnswer) -> npt.NDArray[np.int64]:
    """How many numbers each level gave, by ``Source`` and ``Bound``."""
    counts = np.zeros((len(Source), len(Bound)), dtype=np.int64)
    for estimates in answer.estimates:
        kinds = estimates.source_c * len(Bound) + estimates.bound_c
        counts += np.bincount(kinds, minlength=counts.size).reshape(counts.shape)
    return counts


def answer(
    fleet: EstimatedFleet,
    known: KnownEstimates,
    shapes: Sequence[ReplicaRequirements],
    clusters: Sequence[str] | None,
    options: EstimateOptions,
    now: float,
) -> EstimateAnswer:
    """The same for a given instant; safe in any thread."""
    estimates = known.estimates_of_each(
        fleet.capacity, fleet.reported, shapes, options, fleet.outstanding
    )
    choosing = [each.chooses_nodes for each in shapes]
    return _answered(fleet, tuple(estimates), choosing, clusters, now)


def answer_sets(
    snapshot: FleetSnapshot,
    known: KnownEstimates,
    components: Sequence[Component],
    clusters: Sequence[str] | None,
    options: EstimateOptions,
    now: float,
) -> EstimateAnswer:
    """The same for whole sets of components; safe in any thread."""
    left = known.deductions(snapshot.capacity, snapshot.outstanding).left
    wanted = _positions(snapshot, clusters) if clusters else None
    estimates = estimate_sets(left, snapshot.cells, components, options, wanted)
    bound_c = estimates.bound_c.copy()
    # The cells are as one placement of what is promised leaves them: another may leave less.
    bound_c[list(snapshot.outstanding)] = Bound.NONE
    choosing = [any(each.requirements.chooses_nodes for each in components)]
    return _answered(snapshot, (replace(estimates, bound_c=bound_c),), choosing, clusters, now)


def _answered(
    fleet: EstimatedFleet,
    estimates: tuple[Estimates, ...],
    choosing: Sequence[bool],
    clusters: Sequence[str] | None,
    now: float,
) -> EstimateAnswer:
    """The estimates of a whole fleet, of the clusters that were asked about."""
    names, capacity = fleet.names, fleet.capacity
    age_seconds_c, sequence_c = capacity.age_seconds_c(now), capacity.sequence_c
    if clusters:
        chosen = _positions(fleet, clusters)
        names, estimates = tuple(clusters), tuple(_taken(each, chosen) for each in estimates)
        age_seconds_c, sequence_c = age_seconds_c[chosen], sequence_c[chosen]
    return EstimateAnswer(
        fleet_generation=fleet.generation,
        names=names,
        estimates=estimates,
        choosing=tuple(choosing),
        age_seconds_c=age_seconds_c,
        sequence_c=sequence_c,
    )


def _positions(fleet: EstimatedFleet, clusters: Sequence[str]) -> list[int]:
    check_named(clusters, fleet.positions)
    return [fleet.positions[name] for name in clusters]


def _taken(estimates: Estimates, chosen: Sequence[int]) -> Estimates:
    return Estimates(
        replicas_c=estimates.replicas_c[chosen],
        source_c=estimates.source_c[chosen],
        bound_c=estimates.bound_c[chosen],
        reasons={
            place: estimates.reasons[position]
            for place, position in enumerate(chosen)
            if position in estimates.reasons
        },
        upper_c=None if estimates.upper_c is None else estimates.upper_c[chosen],
    )
