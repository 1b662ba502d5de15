"""How many replicas of a shape still fit, and where: from memory, and from agents on request.

Must not wait for the store, nor longer for agents than the caller does. An agent must not delay or
spoil the answer of another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from federation.capacity.fleet_cells import FleetCells
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.pool_estimates import estimate_sets
from federation.model.errors import FederationError
from federation.model.estimate import (
    Bound,
    EstimateOptions,
    Estimates,
    LevelAnswer,
    Source,
    improved,
)
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason, Text
from federation.model.reservations import Outstanding
from federation.model.workload import Component, ReplicaRequirements
from federation.services.fleet.known_estimates import KnownEstimates, PromisedByPosition, shape_key
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.snapshot import FleetSnapshot, check_named
from federation.services.member_ports import AgentEstimates
from federation.services.ports import Clock
from federation.services.threads import ESTIMATING
from federation.services.values import EstimateAnswer, ExactQuestion

# Fewer shapes and numbers than these take less than 5 ms, which is not worth a thread.
SHAPES_PER_THREAD = 50
NUMBERS_PER_THREAD = 50_000
# This many cells with promises take less than 5 ms. Short work stays on the event loop, because a
# thread beside a busy loop would wait for its turn at every step.
PROMISED_CELLS_PER_THREAD = 30_000
# For each cluster that reported there are about two with other promises.
CHANGES_A_REPORT = 3
# Promises in a cluster without cells cost as much as this many cells.
CELLS_FOR_A_BLIND_CLUSTER = 300
# The longest wait for an agent, however long the caller would wait.
EXACT_SECONDS = 3.0


class EstimatedFleet(Protocol):
    """A fleet at one instant, as far as estimates go.

    ``outstanding`` promises are by position; ``reported`` are the cells of reports.
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
        # Counts of numbers by the ``Source`` and ``Bound`` of their level.
        self.answered = np.zeros((len(Source), len(Bound)), dtype=np.int64)

    def cluster_count(self) -> int:
        """Count the clusters that are meant when none are named."""
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
        """Estimate every shape for the named clusters, in their order; none: the whole fleet.

        If ``exact`` may answer, agents have ``timeout_seconds`` for it. Raises InvalidRequest for
        names that are not in the fleet.
        """
        snapshot, now = self._fleet.snapshot, self._clock.now()
        amounts = sum(max(1, len(shape.request)) for shape in shapes)
        numbers = amounts * len(clusters or snapshot.names)
        is_quick = len(shapes) < SHAPES_PER_THREAD and numbers < NUMBERS_PER_THREAD
        if is_quick and self._cells_beside(snapshot, shapes, options) < PROMISED_CELLS_PER_THREAD:
            estimates = answer(snapshot, self._known, shapes, clusters, options, now)
        else:
            estimates = await ESTIMATING.run(
                answer, snapshot, self._known, shapes, clusters, options, now
            )
        question = ExactQuestion(shapes=tuple(shapes))
        return await self._finish(estimates, snapshot, question, options, timeout_seconds)

    async def estimate_sets(
        self,
        components: Sequence[Component],
        clusters: Sequence[str] | None,
        options: EstimateOptions,
        timeout_seconds: float = EXACT_SECONDS,
    ) -> EstimateAnswer:
        """Estimate whole sets of one workload's components, as ``estimate`` does."""
        snapshot, now = self._fleet.snapshot, self._clock.now()
        estimates = await ESTIMATING.run(
            answer_sets, snapshot, self._known, components, clusters, options, now
        )
        question = ExactQuestion(components=tuple(components))
        return await self._finish(estimates, snapshot, question, options, timeout_seconds)

    def _cells_beside(
        self,
        snapshot: FleetSnapshot,
        shapes: Sequence[ReplicaRequirements],
        options: EstimateOptions,
    ) -> float:
        """Count the cells to look through because of promises, or an equal amount of work."""
        promised = list(snapshot.outstanding)
        if not promised:
            return 0
        if options.highest < Source.POOLS:
            return len(shapes) * len(promised) * CELLS_FOR_A_BLIND_CLUSTER
        cells_c = snapshot.rooms.cells_c
        blind = len(promised) - np.count_nonzero(cells_c[promised])
        reported = snapshot.rooms.reported
        changed = sum(self._known.share_changed(reported, shape) for shape in shapes)
        in_cells = int(cells_c.sum()) * min(len(shapes), CHANGES_A_REPORT * changed)
        return in_cells + len(shapes) * int(blind) * CELLS_FOR_A_BLIND_CLUSTER

    async def _finish(
        self,
        answer: EstimateAnswer,
        snapshot: FleetSnapshot,
        question: ExactQuestion,
        options: EstimateOptions,
        timeout_seconds: float,
    ) -> EstimateAnswer:
        """Improve an answer by those of agents that may and do answer in time; count its levels."""
        if options.highest >= Source.EXACT:
            exact = await ask_agents(
                self._agents,
                answer.names,
                question,
                min(timeout_seconds, EXACT_SECONDS),
                {snapshot.names[c]: promises for c, promises in snapshot.outstanding.items()},
            )
            improved_estimates = tuple(
                improved(estimates, exact.level(position), options.merge)
                for position, estimates in enumerate(answer.estimates)
            )
            answer = replace(answer, estimates=improved_estimates)
        self.answered += counted(answer)
        return answer


def counted(answer: EstimateAnswer) -> npt.NDArray[np.int64]:
    """Count numbers by the ``Source`` and ``Bound`` of their level."""
    counts = np.zeros((len(Source), len(Bound)), dtype=np.int64)
    for estimates in answer.estimates:
        kinds = estimates.source_c * len(Bound) + estimates.bound_c
        counts += np.bincount(kinds, minlength=counts.size).reshape(counts.shape)
    return counts


def answer(
    fleet: EstimatedFleet,
    cache: KnownEstimates,
    shapes: Sequence[ReplicaRequirements],
    clusters: Sequence[str] | None,
    options: EstimateOptions,
    now: float,
) -> EstimateAnswer:
    """Estimate shapes on a fleet at one instant; safe in any thread."""
    estimates = cache.estimates_of_each(
        fleet.capacity, fleet.reported, shapes, options, fleet.outstanding
    )
    choosing = [shape.chooses_nodes for shape in shapes]
    return _answered(fleet, tuple(estimates), choosing, clusters, now)


def answer_sets(
    snapshot: FleetSnapshot,
    cache: KnownEstimates,
    components: Sequence[Component],
    clusters: Sequence[str] | None,
    options: EstimateOptions,
    now: float,
) -> EstimateAnswer:
    """Estimate whole sets of components on a snapshot; safe in any thread."""
    unpromised = cache.deductions(snapshot.capacity, snapshot.outstanding).left
    positions = _positions(snapshot, clusters) if clusters else None
    estimates = estimate_sets(unpromised, snapshot.cells, components, options, positions)
    bound_c = estimates.bound_c.copy()
    # The cells are free after one placement of promises: another may leave less.
    bound_c[list(snapshot.outstanding)] = Bound.NONE
    choosing = [any(component.requirements.chooses_nodes for component in components)]
    return _answered(snapshot, (replace(estimates, bound_c=bound_c),), choosing, clusters, now)


def _answered(
    fleet: EstimatedFleet,
    estimates: tuple[Estimates, ...],
    choosing: Sequence[bool],
    clusters: Sequence[str] | None,
    now: float,
) -> EstimateAnswer:
    """Return the named part of the estimates of a whole fleet."""
    names, capacity = fleet.names, fleet.capacity
    age_seconds_c, sequence_c = capacity.age_seconds_c(now), capacity.sequence_c
    if clusters:
        chosen = _positions(fleet, clusters)
        names, estimates = tuple(clusters), tuple(_taken(level, chosen) for level in estimates)
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactAnswers:
    """Answers of agents: a row of numbers a question (axis s) for the clusters asked (axis c).

    In clusters at ``beside_promises_c`` pods of promises are on no node yet. An agent assumes them
    on the first nodes with room, which proves nothing: others may choose other nodes.
    """

    replicas_sc: npt.NDArray[np.int64]
    answered_c: npt.NDArray[np.bool_]
    beside_promises_c: npt.NDArray[np.bool_]
    reasons: dict[int, Reason]

    def level(self, position: int) -> LevelAnswer:
        """Return the level ``exact`` for one of the questions."""
        return LevelAnswer(
            source=Source.EXACT,
            replicas_c=self.replicas_sc[position],
            answered_c=self.answered_c,
            bound_c=np.where(self.beside_promises_c, np.int8(Bound.NONE), np.int8(Bound.EXACT)),
            reasons=self.reasons,
        )


async def ask_agents(
    agents: AgentEstimates,
    clusters: Sequence[str],
    question: ExactQuestion,
    timeout_seconds: float,
    outstanding: Mapping[str, Sequence[Outstanding]],
) -> ExactAnswers:
    """Ask all agents at once, for no longer than ``timeout_seconds``.

    Promises that are ``outstanding`` in a cluster come first there.
    """
    questions = [_beside(question, outstanding.get(cluster, ())) for cluster in clusters]
    answers = await asyncio.gather(
        *(
            _ask(agents, cluster, sent, timeout_seconds)
            for cluster, sent in zip(clusters, questions, strict=True)
        )
    )
    rows = 1 if question.components else len(question.shapes)
    replicas_sc = np.zeros((rows, len(clusters)), dtype=np.int64)
    reasons: dict[int, Reason] = {}
    for position, answer in enumerate(answers):
        if isinstance(answer, Reason):
            reasons[position] = answer
            continue
        replicas_sc[:, position] = answer
        if assumed := questions[position].assumed:
            waiting = sum(component.replicas for group in assumed for component in group)
            reasons[position] = Reason.of(ReasonCode.COUNTED_BESIDE_PROMISES, Amount(waiting))
    return ExactAnswers(
        replicas_sc=replicas_sc,
        answered_c=np.array([not isinstance(answer, Reason) for answer in answers], dtype=np.bool_),
        beside_promises_c=np.array([bool(sent.assumed) for sent in questions], dtype=np.bool_),
        reasons=reasons,
    )


def _beside(question: ExactQuestion, outstanding: Sequence[Outstanding]) -> ExactQuestion:
    """Return the question with outstanding promises, which are on no node yet, assumed."""
    if not outstanding:
        return question
    alike: dict[Hashable, Component] = {}
    for promise in outstanding:
        key = shape_key(promise.requirements)
        replicas = promise.to_pack + (alike[key].replicas if key in alike else 0)
        alike[key] = Component(
            name="outstanding", replicas=replicas, requirements=promise.requirements
        )
    assumed = tuple((component,) for component in alike.values() if component.replicas)
    return replace(question, assumed=assumed)


async def _ask(
    agents: AgentEstimates, cluster: str, question: ExactQuestion, timeout_seconds: float
) -> tuple[int, ...] | Reason:
    """Return the numbers of an agent, or why there are none."""
    if not agents.sees_nodes(cluster):
        return Reason(ReasonCode.NO_AGENT)
    try:
        return await agents.estimate(cluster, question, timeout_seconds)
    except FederationError as error:
        return Reason.of(ReasonCode.ERROR_TEXT, Text(error.message))
