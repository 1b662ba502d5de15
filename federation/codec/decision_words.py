"""Parts of decisions in words, for terminals and pages alike.

Must not interpret a trace beyond what it recorded.
"""

from __future__ import annotations

from typing import Final

from federation.v1 import estimates_pb2, scheduling_pb2

_LIMITED: Final = {
    "min": "raised to the least replicas asked for",
    "max": "held to the most replicas asked for",
    "room": "no more fits",
    "others": "others are at their limits",
}


def why(cluster: scheduling_pb2.ClusterTrace) -> str:
    """What became of one cluster, in a few words."""
    if cluster.filter:
        return f"{cluster.filter}: {cluster.reason}"
    if not cluster.selected:
        return "passed every filter, not selected"
    if cluster.availability_unknown and cluster.estimate_note:
        return f"selected; {cluster.estimate_note}"
    if cluster.limited_by:
        return f"selected; {_LIMITED.get(cluster.limited_by, cluster.limited_by)}"
    if cluster.tied:
        return "selected; holds a remainder seat, won by the tie order"
    if cluster.remainder_seat:
        return "selected; holds a remainder seat"
    return "selected"


def outcome_name(outcome: scheduling_pb2.Outcome.ValueType) -> str:
    """``SCHEDULED`` for OUTCOME_SCHEDULED."""
    return scheduling_pb2.Outcome.Name(outcome).removeprefix("OUTCOME_")


def source_word(source: estimates_pb2.EstimateSource.ValueType) -> str:
    """``models`` for ESTIMATE_SOURCE_MODELS; ``-`` when nothing answered."""
    name = estimates_pb2.EstimateSource.Name(source).removeprefix("ESTIMATE_SOURCE_").lower()
    return "-" if name == "unspecified" else name


def bound_word(bound: estimates_pb2.EstimateBound.ValueType) -> str:
    """``lower`` for ESTIMATE_BOUND_LOWER."""
    name = estimates_pb2.EstimateBound.Name(bound).removeprefix("ESTIMATE_BOUND_").lower()
    return "-" if name == "unspecified" else name
