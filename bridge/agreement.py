"""What karmada-scheduler decided beside what fedsched decides, and why they differ.

Pure. Must not call a difference explained that was not shown to have that cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from bridge.karmada import KarmadaBinding
from federation.v1 import estimates_pb2, scheduling_pb2, simulation_pb2

TIES: Final = "ties are broken in another order: --as-karmada breaks them alike"
ESTIMATES: Final = "free room is estimated otherwise: --as-karmada estimates as Karmada does"
UNEXPLAINED: Final = "other shares: the clusters' status may have changed between the two"

_PLACED: Final = (scheduling_pb2.OUTCOME_SCHEDULED, scheduling_pb2.OUTCOME_PARTIAL)


class Occasion(StrEnum):
    """STANDING: it was placed when the shadow began, and is asked to stay. DECIDED: it was placed
    anew since.
    """

    STANDING = "standing"
    DECIDED = "decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One decision of both; ``why`` is empty where they agree."""

    binding: str
    occasion: Occasion
    karmada: Mapping[str, int]
    fedsched: Mapping[str, int] | None
    why: str = ""

    @property
    def agrees(self) -> bool:
        return not self.why


def usual_options() -> simulation_pb2.SimulationOptions:
    return simulation_pb2.SimulationOptions(include_traces=True)


def same_ties() -> simulation_pb2.SimulationOptions:
    return simulation_pb2.SimulationOptions(include_traces=True, tie_break="karmada")


def as_karmada_options() -> simulation_pb2.SimulationOptions:
    """Ties and estimates as Karmada 1.18 and later has them."""
    return simulation_pb2.SimulationOptions(
        include_traces=True,
        tie_break="karmada",
        model_rule=estimates_pb2.MODEL_RULE_SIMULATED,
        merge=estimates_pb2.ESTIMATE_MERGE_MINIMUM,
    )


def targets_of(decision: scheduling_pb2.Decision) -> dict[str, int] | None:
    """Replicas by cluster; None where nothing was placed."""
    if decision.outcome not in _PLACED:
        return None
    return {each.name: each.replicas for each in decision.clusters}


def is_same(binding: KarmadaBinding, ours: Mapping[str, int] | None) -> bool:
    """Whether both put it where it is; by names alone where there is nothing to divide."""
    if ours is None:
        return not binding.targets
    if not binding.is_workload or binding.spec.get("components"):
        return binding.targets.keys() == ours.keys()
    placed = {name: count for name, count in binding.targets.items() if count}
    return placed == {name: count for name, count in ours.items() if count}


def why_not(binding: KarmadaBinding, decision: scheduling_pb2.Decision) -> str:
    """What our decision says of the clusters that karmada-scheduler chose."""
    ours = targets_of(decision)
    if ours is None:
        return decision.reason
    traced = {each.name: each for each in decision.trace.clusters}
    lacking = [name for name in sorted(binding.targets) if name not in ours]
    for name in lacking:
        trace = traced.get(name)
        if trace is None:
            return f"{name} is not among Karmada's clusters"
        if trace.filter:
            return f"{name}: {trace.reason}"
        if not trace.availability_unknown and trace.available_replicas < binding.targets[name]:
            return f"{name} has room for {trace.available_replicas} more by its status"
    return UNEXPLAINED


def summary_lines(compared: Iterable[Comparison]) -> list[str]:
    """How many agree, for people."""
    by_occasion: dict[Occasion, list[Comparison]] = {each: [] for each in Occasion}
    for each in compared:
        by_occasion[each.occasion].append(each)
    words = {
        Occasion.STANDING: "placed bindings would stay as they are",
        Occasion.DECIDED: "new decisions are the same",
    }
    return [
        f"{sum(each.agrees for each in found)} of {len(found)} {words[occasion]}"
        for occasion, found in by_occasion.items()
        if found
    ] or ["There is nothing to compare: no binding is placed."]


def rows_of(compared: Iterable[Comparison]) -> list[tuple[str, str, str, str, str]]:
    """The differences, as cells of a table."""
    return [
        (
            each.binding,
            each.occasion.value,
            _shown(each.karmada),
            "-" if each.fedsched is None else _shown(each.fedsched),
            each.why,
        )
        for each in compared
        if not each.agrees
    ]


def document_of(compared: Sequence[Comparison]) -> dict[str, Any]:
    """Everything, for programs."""
    return {
        "compared": len(compared),
        "agreed": sum(each.agrees for each in compared),
        "differences": [
            {
                "binding": each.binding,
                "occasion": each.occasion.value,
                "karmada": dict(each.karmada),
                "fedsched": None if each.fedsched is None else dict(each.fedsched),
                "why": each.why,
            }
            for each in compared
            if not each.agrees
        ],
    }


def _shown(targets: Mapping[str, int]) -> str:
    return " ".join(f"{name}={targets[name]}" for name in sorted(targets)) or "-"
