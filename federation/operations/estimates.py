"""Operations that estimate how many replicas of each shape fit in each cluster.

Must not decide anything: ``Availability`` does.
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
from federation.operations.table import OperationCall, operation
from federation.rpc.bindings import read_off_loop
from federation.rpc.estimating import Wanted
from federation.services.estimates.availability import EXACT_SECONDS
from federation.services.fleet.snapshot import check_named
from federation.services.threads import ESTIMATING
from federation.v1 import estimates_pb2 as messages

# Up to eleven bytes each, and notes: an answer must stay below the 4 MiB that clients take.
MAX_NUMBERS = 250_000
# Of the time a caller has left, this share is for agents; the rest is for answering.
SHARE_FOR_AGENTS = 0.8
# Fewer are written in less than 5 ms: not worth a thread.
NUMBERS_PER_THREAD = 20_000


@operation("Estimates/EstimateReplicas", checked=False)
async def estimate_replicas(
    call: OperationCall, request: messages.EstimateReplicasRequest
) -> messages.EstimateReplicasResponse:
    shapes, options = await read_off_loop(request, shapes_from_message)
    availability, process = call.services.availability, call.services.estimating
    # Refusals must cost nothing, so they come ahead of the work.
    names = _visible(request.clusters, call)
    clusters = len(names) or availability.cluster_count()
    numbers = len(shapes) * clusters
    if numbers > MAX_NUMBERS:
        raise LimitExceeded(
            f"{len(shapes)} shapes over {clusters} clusters are {numbers} numbers, "
            f"and one answer holds {MAX_NUMBERS}: ask for fewer shapes or clusters at a time"
        )
    if process is not None and options.highest < Source.EXACT:
        question = Wanted(
            shapes=shapes,
            clusters=names,
            options=options,
            include_cluster_names=request.include_cluster_names,
            include_upper_bounds=request.include_upper_bounds,
        )
        response = await process.answer(question, call.seconds_left)
        if response is not None:
            return response
    answer = await availability.estimate(shapes, names, options, _seconds_for_agents(call))
    write = partial(
        estimates_to_message,
        answer,
        include_cluster_names=request.include_cluster_names,
        include_upper_bounds=request.include_upper_bounds,
    )
    return write() if numbers < NUMBERS_PER_THREAD else await ESTIMATING.run(write)


@operation("Estimates/EstimateComponentSets", checked=False)
async def estimate_component_sets(
    call: OperationCall, request: messages.EstimateComponentSetsRequest
) -> messages.EstimateComponentSetsResponse:
    components, options = await read_off_loop(request, components_from_message)
    answer = await call.services.availability.estimate_sets(
        components, _visible(request.clusters, call), options, _seconds_for_agents(call)
    )
    return sets_to_message(answer, include_cluster_names=request.include_cluster_names)


def _visible(names: Sequence[str], call: OperationCall) -> Sequence[str]:
    """Return the clusters that are meant; none: the whole fleet.

    Raises InvalidRequest, and NotFound.
    """
    if call.scope.sees_all_clusters:
        return names
    visible = tuple(filter(call.scope.sees_cluster, call.services.availability.cluster_names()))
    if names:
        check_named(names, frozenset(visible))
    elif not visible:
        raise NotFound(f"There is no cluster {' or '.join(call.scope.cluster_texts)}.")
    return names or visible


def _seconds_for_agents(call: OperationCall) -> float:
    seconds = call.seconds_left
    return EXACT_SECONDS if seconds is None else SHARE_FOR_AGENTS * max(0.0, seconds)
