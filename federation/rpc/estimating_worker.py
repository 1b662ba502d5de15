"""The program of the process that estimates: news of the fleet and questions on standard input,
answers on the output.

Must not know the store or the network; it ends with the process that started it.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.codec.estimates import estimates_to_message
from federation.model.estimate import Bound, EstimateOptions, Source
from federation.model.workload import ReplicaRequirements
from federation.rpc.worker_pipes import FrameAnswer, answer_frames, end_with_parent
from federation.runtime.allocator import keep_memory_for_tables
from federation.services.estimates.availability import answer, counted
from federation.services.estimates.replica_fleet import FleetDelta, ReplicaFleet
from federation.services.fleet.known_estimates import KnownEstimates
from federation.services.workers import AnswerKind

# In front of an answer: how many numbers each level gave.
COUNTS: Final = (len(Source), len(Bound))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """As ``Availability.estimate``; ``now`` in Unix seconds, the rest as the request says."""

    shapes: Sequence[ReplicaRequirements]
    clusters: Sequence[str] | None
    options: EstimateOptions
    now: float
    include_cluster_names: bool
    include_upper_bounds: bool


def main() -> None:
    """Answer until standard input ends."""
    end_with_parent()
    keep_memory_for_tables()
    fleet, estimates = ReplicaFleet(), KnownEstimates()

    def answer_frame(frame: bytes) -> FrameAnswer | None:
        news: FleetDelta | Question = pickle.loads(frame)  # noqa: S301 - from our starter
        if isinstance(news, FleetDelta):
            fleet.apply(news)
            return None
        try:
            return FrameAnswer(AnswerKind.ANSWER, answered(fleet, estimates, news))
        except Exception:  # noqa: BLE001 - one question must not end the answers to all others
            # Its caller finds out why, in a thread of the control plane.
            return FrameAnswer(AnswerKind.REFUSAL, b"")

    answer_frames(answer_frame)


def answered(fleet: ReplicaFleet, known: KnownEstimates, asked: Question) -> bytes:
    """How many numbers each level gave, and the response."""
    found = answer(fleet, known, asked.shapes, asked.clusters, asked.options, asked.now)
    message = estimates_to_message(
        found,
        include_cluster_names=asked.include_cluster_names,
        include_upper_bounds=asked.include_upper_bounds,
    )
    return counted(found).tobytes() + message.SerializeToString()


def split(body: bytes) -> tuple[npt.NDArray[np.int64], bytes]:
    """What ``answered`` put together."""
    size = COUNTS[0] * COUNTS[1] * np.dtype(np.int64).itemsize
    return np.frombuffer(body[:size], dtype=np.int64).reshape(COUNTS), body[size:]
