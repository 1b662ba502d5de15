"""Answers about estimates, unpacked.

Must not ask anybody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from federation.v1 import estimates_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateTable:
    """An estimate answer unpacked: ``replicas[shape][cluster]`` is None where unknown.

    ``sources``, ``bounds``, ``notes``, ``upper_replicas`` (no more than these fit; None where
    nothing is proven) and ``ignores_node_claim`` (the level could not see which nodes the shape
    chooses) have the same shape; ages and sequences are per cluster.
    """

    clusters: Sequence[str]
    replicas: Sequence[Sequence[int | None]]
    sources: Sequence[Sequence[estimates_pb2.EstimateSource.ValueType]]
    bounds: Sequence[Sequence[estimates_pb2.EstimateBound.ValueType]]
    notes: Sequence[Sequence[str]]
    upper_replicas: Sequence[Sequence[int | None]]
    ignores_node_claim: Sequence[Sequence[bool]]
    age_seconds: Sequence[float]
    sequences: Sequence[int]
    fleet_generation: str

    @classmethod
    def of_sets(cls, answer: estimates_pb2.EstimateComponentSetsResponse) -> Self:
        """Unpack an answer about sets, of which ``replicas`` then counts one row."""
        return cls.of(
            estimates_pb2.EstimateReplicasResponse(
                fleet_generation=answer.fleet_generation,
                replicas=answer.sets,
                unknown=answer.unknown,
                sources=answer.sources,
                bounds=answer.bounds,
                age_seconds=answer.age_seconds,
                sequences=answer.sequences,
                clusters=answer.clusters,
                notes=answer.notes,
                ignores_node_claim=answer.ignores_node_claim,
                upper_replicas=[-1] * len(answer.sets),
            ),
            shapes=1,
        )

    @classmethod
    def of(cls, answer: estimates_pb2.EstimateReplicasResponse, *, shapes: int) -> Self:
        """Unpacks an answer about so many shapes that repeats the clusters' names."""
        names = list(answer.clusters)
        width = len(names)
        starts = [shape * width for shape in range(shapes)]
        flat: list[int | None] = list(answer.replicas)
        for position in answer.unknown:
            flat[position] = None
        upper = [None if number < 0 else number for number in answer.upper_replicas]
        ignores = [False] * len(flat)
        for position in answer.ignores_node_claim:
            ignores[position] = True
        notes = [""] * len(flat)
        for note in answer.notes:
            notes[note.position] = note.reason
        return cls(
            clusters=names,
            replicas=[flat[at : at + width] for at in starts],
            sources=[answer.sources[at : at + width] for at in starts],
            bounds=[answer.bounds[at : at + width] for at in starts],
            notes=[notes[at : at + width] for at in starts],
            upper_replicas=[upper[at : at + width] for at in starts],
            ignores_node_claim=[ignores[at : at + width] for at in starts],
            age_seconds=list(answer.age_seconds),
            sequences=list(answer.sequences),
            fleet_generation=answer.fleet_generation,
        )
