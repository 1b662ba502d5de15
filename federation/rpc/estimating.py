"""Estimates of large fleets, worked out in a process of their own beside the control plane's.

Must not have anybody wait for that process to start: until it knows the fleet, threads answer.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from federation.model.estimate import EstimateOptions
from federation.model.workload import ReplicaRequirements
from federation.rpc.estimating_worker import Question, split
from federation.services.estimates.availability import SHAPES_PER_THREAD, Availability
from federation.services.estimates.replica_fleet import FleetDeltas
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import Change, ClusterChanged
from federation.services.ports import Clock
from federation.services.workers import AnswerKind, StandingProcess
from federation.v1.estimates_pb2 import EstimateReplicasResponse

# Smaller fleets are gone through in less time than it takes to ask.
WORTH_CLUSTERS: Final = 250
# Told at once: pickled in less than 10 ms.
CLUSTERS_A_PART: Final = 100
_START: Final = "from federation.rpc.estimating_worker import main; main()"
PROGRAM: Final = (sys.executable, "-c", _START)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be estimated, and what of it is to be told; no clusters: the whole fleet."""

    shapes: Sequence[ReplicaRequirements]
    clusters: Sequence[str]
    options: EstimateOptions
    include_cluster_names: bool
    include_upper_bounds: bool


class EstimatingProcess:
    """Belongs to one event loop."""

    def __init__(self, fleet: FleetOwner, availability: Availability, clock: Clock) -> None:
        self._fleet = fleet
        self._availability = availability
        self._clock = clock
        self.process = StandingProcess("estimates", PROGRAM, _PickledDeltas(FleetDeltas(fleet)))
        fleet.observe(self._grown, ClusterChanged)

    async def answer(
        self, asked: Wanted, seconds: float | None = None
    ) -> EstimateReplicasResponse | None:
        """None where it is not worth it, or others would wait too long; where the process has no
        answer, too. ``seconds``: how long the caller waits, None: any time.

        Raises InvalidRequest for clusters that are not in the fleet, and LimitExceeded.
        """
        if self._fleet.size < WORTH_CLUSTERS or len(asked.shapes) >= SHAPES_PER_THREAD:
            return None

        def question() -> bytes:
            self._fleet.check_known(asked.clusters)
            return pickle.dumps(
                Question(
                    shapes=asked.shapes,
                    clusters=tuple(asked.clusters) or None,
                    options=asked.options,
                    now=self._clock.now(),
                    include_cluster_names=asked.include_cluster_names,
                    include_upper_bounds=asked.include_upper_bounds,
                )
            )

        answer = await self.process.ask(question, seconds)
        if answer is None or answer.kind is AnswerKind.REFUSAL:
            return None
        counts, body = split(answer.body)
        self._availability.answered += counts
        return EstimateReplicasResponse.FromString(body)

    def begin(self) -> None:
        """So that it knows a large fleet before anybody asks."""
        if self._fleet.size >= WORTH_CLUSTERS:
            self.process.begin()

    async def close(self) -> None:
        await self.process.close()

    def _grown(self, _: Change) -> None:
        self.begin()


class _PickledDeltas:
    """Implements ``ChangeSource``."""

    def __init__(self, deltas: FleetDeltas) -> None:
        self._deltas = deltas

    def begin_anew(self) -> None:
        self._deltas.begin_anew()

    @property
    def has_more(self) -> bool:
        return len(self._deltas) > 0

    def next_part(self) -> bytes:
        return pickle.dumps(self._deltas.take(CLUSTERS_A_PART))
