"""The program of the process that estimates: news of the fleet and questions on standard input,
answers on the output.

Must not know the store or the network; it ends with the process that started it.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.codec.estimates import estimates_to_message
from federation.model.estimate import Bound, EstimateOptions, Source
from federation.model.workload import ReplicaRequirements
from federation.rpc.worker_pipes import end_with_parent, read_frame
from federation.runtime.allocator import keep_memory_for_tables
from federation.services.estimates.availability import answer, counted
from federation.services.estimates.replica_fleet import FleetDelta, ReplicaFleet
from federation.services.fleet.known_estimates import KnownEstimates
from federation.services.workers import HEADER, READY, AnswerKind

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
    threading.Thread(target=end_with_parent, daemon=True).start()
    keep_memory_for_tables()
    into, out = sys.stdin.buffer, sys.stdout.buffer
    out.write(READY)
    out.flush()
    fleet, known = ReplicaFleet(), KnownEstimates()
    while True:
        told: FleetDelta | Question = pickle.loads(read_frame(into))  # noqa: S301 - from our starter
        if isinstance(told, FleetDelta):
            fleet.apply(told)
            continue
        kind, body = AnswerKind.ANSWER, b""
        try:
            body = answered(fleet, known, told)
        except Exception:  # noqa: BLE001 - one question must not end the answers to all others
            # Whoever asked finds out why, in a thread of the control plane's.
            kind = AnswerKind.REFUSAL
        out.write(HEADER.pack(kind, False, len(body)))
        out.write(body)
        out.flush()


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
