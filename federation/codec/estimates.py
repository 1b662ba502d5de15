"""Estimates: requests from messages, answers to messages.

Must not estimate anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from federation.codec import ranges
from federation.codec.counts import refuse_too_many
from federation.codec.requirements import read_components, read_requirements
from federation.codec.rules import check_rules
from federation.codec.strict import refuse_nul
from federation.codec.violations import Violations
from federation.codec.written import enum_word
from federation.model.arrays import LevelArray
from federation.model.estimate import (
    BLIND_UP_TO,
    Bound,
    EstimateOptions,
    Estimates,
    Merge,
    ModelRule,
    Source,
)
from federation.model.workload import Component, ReplicaRequirements
from federation.v1 import estimates_pb2, simulation_pb2

MAX_NOTES: Final = 10_000

# Unspecified means the default in each of them.
_SOURCES: Final = {
    estimates_pb2.ESTIMATE_SOURCE_UNSPECIFIED: EstimateOptions().highest,
    estimates_pb2.ESTIMATE_SOURCE_SUMMARY: Source.SUMMARY,
    estimates_pb2.ESTIMATE_SOURCE_MODELS: Source.MODELS,
    estimates_pb2.ESTIMATE_SOURCE_POOLS: Source.POOLS,
    estimates_pb2.ESTIMATE_SOURCE_EXACT: Source.EXACT,
}
# Who names one of these takes its answer without the node claim.
_BLIND: Final = frozenset(
    {estimates_pb2.ESTIMATE_SOURCE_SUMMARY, estimates_pb2.ESTIMATE_SOURCE_MODELS}
)
_RULES: Final = {
    estimates_pb2.MODEL_RULE_UNSPECIFIED: EstimateOptions().model_rule,
    estimates_pb2.MODEL_RULE_DOCUMENTED: ModelRule.DOCUMENTED,
    estimates_pb2.MODEL_RULE_BOUNDARY: ModelRule.BOUNDARY,
    estimates_pb2.MODEL_RULE_SIMULATED: ModelRule.SIMULATED,
}
_MERGES: Final = {
    estimates_pb2.ESTIMATE_MERGE_UNSPECIFIED: EstimateOptions().merge,
    estimates_pb2.ESTIMATE_MERGE_QUALITY: Merge.QUALITY,
    estimates_pb2.ESTIMATE_MERGE_MINIMUM: Merge.MINIMUM,
}
_SOURCE_MESSAGES: Final = {
    Source.NONE: estimates_pb2.ESTIMATE_SOURCE_UNSPECIFIED,
    **{source: number for number, source in _SOURCES.items() if number},
}
_BOUND_MESSAGES: Final = {
    Bound.NONE: estimates_pb2.ESTIMATE_BOUND_NONE,
    Bound.LOWER: estimates_pb2.ESTIMATE_BOUND_LOWER,
    Bound.EXACT: estimates_pb2.ESTIMATE_BOUND_EXACT,
}
# The same by position, to look up whole arrays.
_SOURCE_NUMBERS: Final = np.array([_SOURCE_MESSAGES[source] for source in Source])
_BOUND_NUMBERS: Final = np.array([_BOUND_MESSAGES[bound] for bound in Bound])

Key = TypeVar("Key", bound=int)
Value = TypeVar("Value")


class EstimateView(Protocol):
    """An answer: one Estimates a shape, and what is known of each cluster's report (axis c).

    ``choosing`` says of each shape whether it chooses its nodes by their labels or names.
    """

    @property
    def fleet_generation(self) -> str: ...
    @property
    def names(self) -> Sequence[str]: ...
    @property
    def estimates(self) -> Sequence[Estimates]: ...
    @property
    def choosing(self) -> Sequence[bool]: ...
    @property
    def age_seconds_c(self) -> npt.NDArray[np.float64]: ...
    @property
    def sequence_c(self) -> npt.NDArray[np.int64]: ...


def shapes_from_message(
    request: estimates_pb2.EstimateReplicasRequest,
) -> tuple[tuple[ReplicaRequirements, ...], EstimateOptions]:
    """What is asked for, and how; raises InvalidRequest with every broken rule.

    The clusters of the request stay names: only the fleet knows which there are.
    """
    found = Violations()
    refuse_too_many(request, "", found)
    is_too_large = len(found) > 0
    check_rules(request, "", found)
    if is_too_large:
        found.check()
    refuse_nul(request, "", found)
    shapes = tuple(
        read_requirements(shape, f"shapes[{position}]", found)
        for position, shape in enumerate(request.shapes)
    )
    options = read_estimate_options(request, "", found)
    found.check()
    return shapes, options


def components_from_message(
    request: estimates_pb2.EstimateComponentSetsRequest,
) -> tuple[tuple[Component, ...], EstimateOptions]:
    """The components of the workload asked about; raises InvalidRequest with every broken rule."""
    found = Violations()
    refuse_too_many(request, "", found)
    is_too_large = len(found) > 0
    check_rules(request, "", found)
    if is_too_large:
        found.check()
    refuse_nul(request, "", found)
    components = read_components(request.components, "components", found)
    highest = _choice(request.highest_source, _SOURCES, "highestSource", found)
    found.check()
    within = tuple(
        replace(each, requirements=replace(each.requirements, namespace=request.namespace))
        for each in components
    )
    return within, EstimateOptions(highest=highest, ignore_claims=request.highest_source in _BLIND)


def read_estimate_options(
    message: estimates_pb2.EstimateReplicasRequest | simulation_pb2.SimulationOptions,
    prefix: str,
    found: Violations,
) -> EstimateOptions:
    """How to estimate, in the fields that both messages have; ``prefix`` goes before theirs."""
    return EstimateOptions(
        model_rule=_choice(message.model_rule, _RULES, f"{prefix}modelRule", found),
        merge=_choice(message.merge, _MERGES, f"{prefix}merge", found),
        highest=_choice(message.highest_source, _SOURCES, f"{prefix}highestSource", found),
        ignore_claims=message.highest_source in _BLIND,
    )


def estimates_to_message(
    answer: EstimateView, *, include_cluster_names: bool, include_upper_bounds: bool = False
) -> estimates_pb2.EstimateReplicasResponse:
    """The packed answer, shape after shape; numbers beyond an int32 are given as its largest.

    Of the notes the first ``MAX_NOTES`` are given: they are for people.
    """
    width = len(answer.names)
    message = estimates_pb2.EstimateReplicasResponse(
        fleet_generation=answer.fleet_generation,
        age_seconds=answer.age_seconds_c.tolist(),
        sequences=answer.sequence_c.tolist(),
        clusters=answer.names if include_cluster_names else (),
    )
    shapes = answer.estimates
    if shapes and width:
        # Written field by field, not shape by shape: one call for each of them.
        replicas = np.concatenate([each.replicas_c for each in shapes])
        source = np.concatenate([each.source_c for each in shapes])
        bound = np.concatenate([each.bound_c for each in shapes])
        message.replicas.extend(np.minimum(replicas, ranges.MAX_REPLICAS).tolist())
        message.unknown.extend(np.flatnonzero(source == Source.NONE).tolist())
        message.sources.extend(_SOURCE_NUMBERS[source].tolist())
        message.bounds.extend(_BOUND_NUMBERS[bound].tolist())
    for shape, estimates in enumerate(shapes):
        first = shape * width
        if include_upper_bounds:
            upper_c = np.full(width, -1) if estimates.upper_c is None else estimates.upper_c
            message.upper_replicas.extend(np.minimum(upper_c, ranges.MAX_REPLICAS).tolist())
        if answer.choosing[shape]:
            blind_c = (estimates.source_c > Source.NONE) & (estimates.source_c <= BLIND_UP_TO)
            message.ignores_node_claim.extend((first + np.flatnonzero(blind_c)).tolist())
        for position in sorted(estimates.reasons)[: MAX_NOTES - len(message.notes)]:
            message.notes.add(position=first + position, reason=str(estimates.reasons[position]))
    return message


def sets_to_message(
    answer: EstimateView, *, include_cluster_names: bool
) -> estimates_pb2.EstimateComponentSetsResponse:
    """The answer about one workload's sets."""
    packed = estimates_to_message(answer, include_cluster_names=include_cluster_names)
    return estimates_pb2.EstimateComponentSetsResponse(
        fleet_generation=packed.fleet_generation,
        sets=packed.replicas,
        unknown=packed.unknown,
        sources=packed.sources,
        bounds=packed.bounds,
        age_seconds=packed.age_seconds,
        sequences=packed.sequences,
        clusters=packed.clusters,
        notes=packed.notes,
        ignores_node_claim=packed.ignores_node_claim,
    )


def source_messages(numbers_c: LevelArray) -> list[int]:
    """Numbers of ``Source`` as they travel."""
    messages: list[int] = _SOURCE_NUMBERS[numbers_c].tolist()
    return messages


def bound_messages(numbers_c: LevelArray) -> list[int]:
    """Numbers of ``Bound`` as they travel."""
    messages: list[int] = _BOUND_NUMBERS[numbers_c].tolist()
    return messages


def source_message(number: int) -> estimates_pb2.EstimateSource.ValueType:
    """A number of ``Source`` as it travels."""
    return _SOURCE_MESSAGES[Source(number)]


def bound_message(number: int) -> estimates_pb2.EstimateBound.ValueType:
    """A number of ``Bound`` as it travels."""
    return _BOUND_MESSAGES[Bound(number)]


def source_word(number: int) -> str:
    """A number of ``Source`` as people write it: models; "unknown" when no level answered."""
    return enum_word(estimates_pb2.EstimateSource.DESCRIPTOR, source_message(number)) or "unknown"


def bound_word(number: int) -> str:
    """A number of ``Bound`` as people write it: none, lower or exact."""
    return enum_word(estimates_pb2.EstimateBound.DESCRIPTOR, bound_message(number))


def _choice(number: Key, choices: Mapping[Key, Value], path: str, found: Violations) -> Value:
    if number not in choices:
        found.add(path, f"has no value {number}")
    return choices.get(number, next(iter(choices.values())))
