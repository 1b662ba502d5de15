"""Estimates: how many replicas of each shape fit in each cluster, packed.

Must not decide anything: reads the message, calls ``Availability``, writes the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from federation.codec.estimates import (
    components_from_message,
    estimates_to_message,
    sets_to_message,
    shapes_from_message,
)
from federation.model.errors import LimitExceeded, NotFound
from federation.model.estimate import Source
from federation.rpc.bindings import read_off_loop
from federation.rpc.calls import Context, caller, seconds_left
from federation.rpc.estimating import EstimatingProcess, Wanted
from federation.services.estimates.availability import EXACT_SECONDS, Availability
from federation.services.fleet.snapshot import check_named
from federation.services.threads import ESTIMATING
from federation.v1 import estimates_pb2 as messages
from federation.v1.estimates_pb2_grpc import EstimatesServicer as Servicer

# Up to eleven bytes each, and notes: an answer must stay below the 4 MiB that clients take.
MAX_NUMBERS = 250_000
# Of the time a caller has left, this share is for agents; the rest is for answering.
SHARE_FOR_AGENTS = 0.8
# Fewer are written in less than 5 ms: not worth a thread.
NUMBERS_PER_THREAD = 20_000


class EstimatesServicer(Servicer):
    """Implements federation.v1.Estimates."""

    def __init__(
        self, availability: Availability, process: EstimatingProcess | None = None
    ) -> None:
        self._availability = availability
        self._process = process

    async def EstimateReplicas(
        self, request: messages.EstimateReplicasRequest, context: Context
    ) -> messages.EstimateReplicasResponse:
        shapes, options = await read_off_loop(request, shapes_from_message)
        # Before anything is counted: what is refused must cost nothing.
        names = self._seen(request.clusters)
        clusters = len(names) or self._availability.cluster_count()
        numbers = len(shapes) * clusters
        if numbers > MAX_NUMBERS:
            raise LimitExceeded(
                f"{len(shapes)} shapes over {clusters} clusters are {numbers} numbers, "
                f"and one answer holds {MAX_NUMBERS}: ask for fewer shapes or clusters at a time"
            )
        if self._process is not None and options.highest < Source.EXACT:
            asked = Wanted(
                shapes=shapes,
                clusters=names,
                options=options,
                include_cluster_names=request.include_cluster_names,
                include_upper_bounds=request.include_upper_bounds,
            )
            response = await self._process.answer(asked, seconds_left(context))
            if response is not None:
                return response
        answer = await self._availability.estimate(
            shapes, names, options, _seconds_for_agents(context)
        )
        write = partial(
            estimates_to_message,
            answer,
            include_cluster_names=request.include_cluster_names,
            include_upper_bounds=request.include_upper_bounds,
        )
        return write() if numbers < NUMBERS_PER_THREAD else await ESTIMATING.run(write)

    async def EstimateComponentSets(
        self, request: messages.EstimateComponentSetsRequest, context: Context
    ) -> messages.EstimateComponentSetsResponse:
        components, options = await read_off_loop(request, components_from_message)
        answer = await self._availability.estimate_sets(
            components, self._seen(request.clusters), options, _seconds_for_agents(context)
        )
        return sets_to_message(answer, include_cluster_names=request.include_cluster_names)

    def _seen(self, names: Sequence[str]) -> Sequence[str]:
        """Those that are meant, none: the whole fleet. Raises InvalidRequest, and NotFound."""
        scope = caller().scope
        if scope.sees_all_clusters:
            return names
        seen = tuple(filter(scope.sees_cluster, self._availability.cluster_names()))
        if names:
            check_named(names, frozenset(seen))
        elif not seen:
            raise NotFound(f"There is no cluster {' or '.join(scope.cluster_texts)}.")
        return names or seen


def _seconds_for_agents(context: Context) -> float:
    left = seconds_left(context)
    return EXACT_SECONDS if left is None else SHARE_FOR_AGENTS * max(0.0, left)
