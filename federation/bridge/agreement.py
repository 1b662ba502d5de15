"""What karmada-scheduler decided beside what fedsched decides, and why they differ.

Pure. Must not call a difference explained that was not shown to have that cause.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from federation.bridge.karmada import KarmadaBinding
from federation.v1 import estimates_pb2, scheduling_pb2, simulation_pb2

# Of what differs so much is told; all of it is counted.
MOST_KEPT: Final = 10_000
_PLACED: Final = (scheduling_pb2.OUTCOME_SCHEDULED, scheduling_pb2.OUTCOME_PARTIAL)


class Occasion(StrEnum):
    """STANDING: it was placed when the shadow began, and is asked to stay. DECIDED: it was placed
    anew since.
    """

    STANDING = "standing"
    DECIDED = "decided"


class Cause(StrEnum):
    """Why two decisions are not the same; SAME: they are."""

    SAME = "same"
    TIES = "ties"
    ESTIMATES = "estimates"
    INVALID = "invalid"
    NOT_PLACED = "not_placed"
    TOO_LARGE = "too_large"
    UNKNOWN_CLUSTER = "unknown_cluster"
    FILTERED = "filtered"
    ROOM = "room"
    UNEXPLAINED = "unexplained"


class Disagreement(NamedTuple):
    """Its kind, which is counted, and what to tell people."""

    cause: Cause
    why: str


NONE: Final = Disagreement(Cause.SAME, "")
TIES: Final = Disagreement(
    Cause.TIES, "ties are broken in another order: --as-karmada breaks them alike"
)
ESTIMATES: Final = Disagreement(
    Cause.ESTIMATES, "free room is estimated otherwise: --as-karmada estimates as Karmada does"
)
TOO_LARGE: Final = Disagreement(
    Cause.TOO_LARGE, "not compared: all clusters and the binding are more than the 4 MiB of a call"
)
UNEXPLAINED: Final = Disagreement(
    Cause.UNEXPLAINED, "other shares: the clusters' status may have changed between the two"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One decision of both."""

    binding: str
    occasion: Occasion
    karmada: Mapping[str, int]
    fedsched: Mapping[str, int] | None
    difference: Disagreement = NONE

    @property
    def agrees(self) -> bool:
        return self.difference.cause is Cause.SAME


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


def difference_of(binding: KarmadaBinding, decision: scheduling_pb2.Decision) -> Disagreement:
    """What our decision says of the clusters that karmada-scheduler chose."""
    ours = targets_of(decision)
    if ours is None:
        return Disagreement(Cause.NOT_PLACED, decision.reason)
    traced = {each.name: each for each in decision.trace.clusters}
    lacking = [name for name in sorted(binding.targets) if name not in ours]
    for name in lacking:
        trace = traced.get(name)
        if trace is None:
            return Disagreement(Cause.UNKNOWN_CLUSTER, f"{name} is not among Karmada's clusters")
        if trace.filter:
            return Disagreement(Cause.FILTERED, f"{name}: {trace.reason}")
        if not trace.availability_unknown and trace.available_replicas < binding.targets[name]:
            why = f"{name} has room for {trace.available_replicas} more by its status"
            return Disagreement(Cause.ROOM, why)
    return UNEXPLAINED


class Agreement:
    """All that was compared: counted, with the newest differences."""

    def __init__(self) -> None:
        self.counts = Counter[tuple[Occasion, Cause]]()
        # Decisions that were not compared: others came faster than they could be.
        self.passed_over = 0
        self.differences = deque[Comparison](maxlen=MOST_KEPT)

    def add(self, compared: Iterable[Comparison]) -> None:
        for each in compared:
            self.counts[each.occasion, each.difference.cause] += 1
            if not each.agrees:
                self.differences.append(each)

    @property
    def agreed(self) -> int:
        return sum(self.counts[each, Cause.SAME] for each in Occasion)


def summary_lines(agreement: Agreement) -> list[str]:
    """How many agree, for people."""
    words = {
        Occasion.STANDING: "placed bindings would stay as they are",
        Occasion.DECIDED: "new decisions are the same",
    }
    compared = Counter[Occasion]()
    for (occasion, _), count in agreement.counts.items():
        compared[occasion] += count
    lines = [
        f"{agreement.counts[occasion, Cause.SAME]} of {compared[occasion]} {words[occasion]}"
        for occasion in Occasion
        if compared[occasion]
    ] or ["There is nothing to compare: no binding is placed."]
    if agreement.passed_over:
        lines.append(f"{agreement.passed_over} new decisions were passed over: too many at once")
    return lines


def rows_of(agreement: Agreement) -> list[tuple[str, str, str, str, str]]:
    """The differences, as cells of a table."""
    return [
        (
            each.binding,
            each.occasion.value,
            _shown(each.karmada),
            "-" if each.fedsched is None else _shown(each.fedsched),
            each.difference.why,
        )
        for each in agreement.differences
    ]


def document_of(agreement: Agreement) -> dict[str, Any]:
    """Everything, for programs."""
    causes = Counter[Cause]()
    for (_, cause), count in agreement.counts.items():
        causes[cause] += count
    return {
        "compared": causes.total(),
        "agreed": agreement.agreed,
        "passed_over": agreement.passed_over,
        "causes": {cause.value: causes[cause] for cause in Cause if causes[cause]},
        "differences": [
            {
                "binding": each.binding,
                "occasion": each.occasion.value,
                "karmada": dict(each.karmada),
                "fedsched": None if each.fedsched is None else dict(each.fedsched),
                "cause": each.difference.cause.value,
                "why": each.difference.why,
            }
            for each in agreement.differences
        ],
    }


def _shown(targets: Mapping[str, int]) -> str:
    return " ".join(f"{name}={targets[name]}" for name in sorted(targets)) or "-"
