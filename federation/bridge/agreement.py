"""Decisions of karmada-scheduler beside ours: whether they agree, why not, and the report of it.

Pure but for printing. Must not call a difference explained without evidence of that cause.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from federation.bridge.decisions import PLACED
from federation.bridge.objects import KarmadaBinding
from federation.runtime.terminal import json_text, say, say_lines
from federation.v1 import estimates_pb2, scheduling_pb2, simulation_pb2

# So many differences are reported in full; all of them are counted.
MAX_DIFFERENCES: Final = 10_000
HEADINGS: Final = ("BINDING", "OCCASION", "KARMADA", "FEDSCHED", "WHY")


class Occasion(StrEnum):
    """STANDING: it was placed when the shadow began, and is requested to stay. DECIDED: it was
    placed anew since.
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
    """Its cause, which is counted, and its text for people."""

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
    """One decision of both schedulers, as replicas by cluster."""

    binding: str
    occasion: Occasion
    karmada: Mapping[str, int]
    fedsched: Mapping[str, int] | None
    difference: Disagreement = NONE

    @property
    def agrees(self) -> bool:
        return self.difference.cause is Cause.SAME

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """A row of the table."""
        ours = "-" if self.fedsched is None else _shares(self.fedsched)
        karmada = _shares(self.karmada)
        return (self.binding, self.occasion.value, karmada, ours, self.difference.why)

    @property
    def document(self) -> dict[str, Any]:
        """The comparison, for programs."""
        return {
            "binding": self.binding,
            "occasion": self.occasion.value,
            "karmada": dict(self.karmada),
            "fedsched": None if self.fedsched is None else dict(self.fedsched),
            "cause": self.difference.cause.value,
            "why": self.difference.why,
        }


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
    if decision.outcome not in PLACED:
        return None
    return {target.name: target.replicas for target in decision.clusters}


def is_same(binding: KarmadaBinding, ours: Mapping[str, int] | None) -> bool:
    """Whether both decisions agree; by names alone where there is nothing to divide."""
    if ours is None:
        return not binding.targets
    if not binding.is_workload or binding.spec.get("components"):
        return binding.targets.keys() == ours.keys()
    placed = {name: count for name, count in binding.targets.items() if count}
    return placed == {name: count for name, count in ours.items() if count}


def difference_of(binding: KarmadaBinding, decision: scheduling_pb2.Decision) -> Disagreement:
    """Return what our decision says of the clusters that karmada-scheduler chose."""
    ours = targets_of(decision)
    if ours is None:
        return Disagreement(Cause.NOT_PLACED, decision.reason)
    traces = {trace.name: trace for trace in decision.trace.clusters}
    for name in sorted(binding.targets.keys() - ours.keys()):
        trace = traces.get(name)
        if trace is None:
            return Disagreement(Cause.UNKNOWN_CLUSTER, f"{name} is not among Karmada's clusters")
        if trace.filter:
            return Disagreement(Cause.FILTERED, f"{name}: {trace.reason}")
        if not trace.availability_unknown and trace.available_replicas < binding.targets[name]:
            why = f"{name} has room for {trace.available_replicas} more by its status"
            return Disagreement(Cause.ROOM, why)
    return UNEXPLAINED


class Agreement:
    """All comparisons: counted, with the newest differences."""

    def __init__(self) -> None:
        self.counts = Counter[tuple[Occasion, Cause]]()
        # Decisions that were not compared: others came faster than they could be.
        self.passed_over = 0
        self.differences = deque[Comparison](maxlen=MAX_DIFFERENCES)

    def add(self, comparisons: Iterable[Comparison]) -> None:
        for comparison in comparisons:
            self.counts[comparison.occasion, comparison.difference.cause] += 1
            if not comparison.agrees:
                self.differences.append(comparison)

    def summary_lines(self) -> list[str]:
        """Return how many decisions agree, for people."""
        words = {
            Occasion.STANDING: "placed bindings would stay as they are",
            Occasion.DECIDED: "new decisions are the same",
        }
        compared = Counter[Occasion]()
        for (occasion, _), count in self.counts.items():
            compared[occasion] += count
        lines = [
            f"{self.counts[occasion, Cause.SAME]} of {compared[occasion]} {words[occasion]}"
            for occasion in Occasion
            if compared[occasion]
        ] or ["There is nothing to compare: no binding is placed."]
        if self.passed_over:
            lines.append(f"{self.passed_over} new decisions were passed over: too many at once")
        return lines

    def document(self) -> dict[str, Any]:
        """Return everything, for programs."""
        causes = Counter[Cause]()
        for (_, cause), count in self.counts.items():
            causes[cause] += count
        return {
            "compared": causes.total(),
            "agreed": causes[Cause.SAME],
            "passed_over": self.passed_over,
            "causes": {cause.value: causes[cause] for cause in Cause if causes[cause]},
            "differences": [comparison.document for comparison in self.differences],
        }


def print_agreement(agreement: Agreement, output: str) -> None:
    """Print it as a table for people or as JSON. ``output``: table or json."""
    if output == "json":
        say_lines(json_text(agreement.document(), indent=2))
        return
    for line in agreement.summary_lines():
        say(line)
    if not agreement.differences:
        return
    say("")
    rows = [HEADINGS, *(comparison.cells for comparison in agreement.differences)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    for row in rows:
        aligned = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        say("  ".join([*aligned, row[-1]]))


def _shares(targets: Mapping[str, int]) -> str:
    return " ".join(f"{name}={targets[name]}" for name in sorted(targets)) or "-"
