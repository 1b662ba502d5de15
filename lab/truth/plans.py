"""What a study is to do, and what it found: promised, left pending, refused though it fitted.

Must not know how it is run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

import numpy as np

from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import Binding, Certificate
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Outcome
from federation.scheduler.fleet import Fleet
from lab.truth.streams import ROWS, Int64Array, Node, Stream, Wanted, free_rn


class Line(StrEnum):
    """A line of the table: what is asked for, and who places."""

    CAREFUL = "careful"
    STRICT = "strict"
    BINDER = "planned by binder"
    EXTENDER = "planned by extender"
    NO_RESERVATION = "no reservation"

    @property
    def certificate(self) -> Certificate | None:
        return _CERTIFICATES[self]


_CERTIFICATES = {
    Line.CAREFUL: Certificate.CAREFUL,
    Line.STRICT: Certificate.STRICT,
    Line.BINDER: Certificate.PLANNED,
    Line.EXTENDER: Certificate.PLANNED,
    Line.NO_RESERVATION: None,
}


# Callers ask for a few workloads at once, then pause.
AT_ONCE = (1, 20)
PAUSE_SECONDS = 0.5
# How much later than its decision a pod is made; shuffled ones at any time until then.
MAKING_SECONDS = 2.0
SHUFFLED_SECONDS = 15.0
# How soon a pod is deleted that a scheduler is being asked about.
DELETED_SECONDS = 0.05
REMADE_ONE_IN = 20
# How long until a pod without a node surely was tried again. The simulated scheduler backs off for
# ten seconds at most; real ones of some releases look at what found no node, or whose extender
# failed, only after sixty.
SIMULATED_PATIENCE, REAL_PATIENCE = 15.0, 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. ``foreign`` is how many pods come and go that nobody decides anything about.

    ``deleted`` is how many others are deleted while a scheduler asks about them. With any, one
    promised pod of ``REMADE_ONE_IN`` is deleted in the same way and made again.
    ``kills`` is how often an agent is killed, and with it its extender or binder. With ``burst``
    all is asked for at once; ``shuffled`` pods are made in any order. Pods are left pending when
    for ``quiet_seconds`` none has found a node. With ``previewed`` what is asked for at once is
    previewed first, all of it, and then committed; it is shared among so many ``planes``.
    ``programs`` is the folder with a real kube-scheduler, None: the simulated one.
    """

    line: Line
    seed: int
    stream: Stream = Stream.PLAIN
    bindings: int = 200
    nodes: tuple[int, ...] = (54, 58)
    foreign: int = 0
    deleted: int = 0
    kills: int = 0
    burst: bool = False
    shuffled: bool = False
    previewed: bool = False
    planes: int = 1
    quiet_seconds: float = SIMULATED_PATIENCE
    programs: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A workload and what was decided: replicas by member; none where it was refused."""

    wanted: Wanted
    shares: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Of one run: pods asked for and promised, and in words those without a node at the end.

    ``weakened`` of the promised were to be planned and are careful. ``refused`` are bindings, and
    of those ``fitted`` would have found room beside all that was promised before them.
    """

    asked: int
    promised: int
    pending: list[str]
    bindings: int
    refused: int
    fitted: int
    weakened: int = 0
    kills: int = 0

    @property
    def promised_and_refused(self) -> str:
        bindings = f"{self.bindings} bindings, {self.refused} refused, {self.fitted} that fitted"
        return f"promised {self.promised}; {bindings}"


def sum_of(founds: Sequence[Found]) -> Found:
    """Of several runs together."""
    total = founds[0]
    for found in founds[1:]:
        sums = {
            name: getattr(total, name) + getattr(found, name)
            for name in (each.name for each in fields(total))
        }
        total = replace(total, **sums)
    return total


def found_of(
    answered: Sequence[Answered],
    nodes: Mapping[str, Sequence[Node]],
    nodes_of_pods: Mapping[str, Mapping[str, str]],
    notes: Mapping[tuple[str, str], str] = MappingProxyType({}),
    **figures: int,
) -> Found:
    """What came of these answers; ``notes`` say why promises, by member and workload, are weak."""
    return Found(
        asked=sum(answer.wanted.replicas for answer in answered),
        promised=sum(sum(answer.shares.values()) for answer in answered),
        pending=pending_of(answered, nodes_of_pods, notes),
        bindings=len(answered),
        refused=sum(not answer.shares for answer in answered),
        fitted=fitted(answered, nodes, nodes_of_pods),
        **figures,
    )


def pending_of(
    answered: Sequence[Answered],
    nodes_of_pods: Mapping[str, Mapping[str, str]],
    notes: Mapping[tuple[str, str], str] = MappingProxyType({}),
) -> list[str]:
    """The pods that were promised and have no node, with what they ask for."""
    return [
        f"{member}/{name}: {answer.wanted}" + (f", weakened: {note}" if note is not None else "")
        for answer in answered
        for member, names in pods_of(answer).items()
        for note in [notes.get((member, answer.wanted.name))]
        for name in names
        if not nodes_of_pods[member].get(name, "")
    ]


def fitted(
    answered: Sequence[Answered],
    nodes: Mapping[str, Sequence[Node]],
    nodes_of_pods: Mapping[str, Mapping[str, str]],
) -> int:
    """How many refused ones fitted, in the order of the answers.

    Beside the pods of those promised before, each where it is in the end.
    """
    free = {member: free_rn(members) for member, members in nodes.items()}
    rows = {member: {node.name: n for n, node in enumerate(nodes[member])} for member in nodes}
    count = 0
    for answer in answered:
        wanted = answer.wanted
        if not answer.shares:
            fits = sum(int(fits_n(wanted, nodes[m], free[m]).sum()) for m in nodes)
            count += fits >= wanted.replicas
        taken_r = asked_of(wanted)
        for member, pod_names in pods_of(answer).items():
            for name in pod_names:
                node = nodes_of_pods[member].get(name, "")
                if node:
                    free[member][:, rows[member][node]] -= taken_r
    return count


def pods_of(answer: Answered) -> dict[str, list[str]]:
    """The names of the pods that a decision stands for, by member."""
    names: dict[str, list[str]] = {}
    start = 0
    for member, replicas in answer.shares.items():
        names[member] = [f"{answer.wanted.name}-{start + n}" for n in range(replicas)]
        start += replicas
    return names


def asked_of(wanted: Wanted) -> Int64Array:
    """What one of its pods takes, as ROWS."""
    return np.array([wanted.request.get(row, 1) for row in ROWS], dtype=np.int64)


def fits_n(wanted: Wanted, nodes: Sequence[Node], free: Int64Array) -> Int64Array:
    """How many of its pods each node takes that has so much free: ROWS x nodes."""
    asked_r = asked_of(wanted)
    takes_n = np.array([wanted.takes(node) for node in nodes])
    room_n: Int64Array = (np.maximum(free, 0) // asked_r[:, np.newaxis]).min(axis=0)
    return np.where(takes_n, room_n, 0)


def shares_of(binding: Binding, fleet: Fleet, room: Sequence[int]) -> dict[str, int]:
    """As it is divided over members with room for so many; empty where it is not."""
    size = len(fleet.names)
    estimates = Estimates(
        replicas_c=np.array(room, dtype=np.int64),
        source_c=np.full(size, Source.EXACT, dtype=np.int8),
        bound_c=np.full(size, Bound.EXACT, dtype=np.int8),
        reasons={},
    )
    decision = schedule(binding, fleet, estimates, now=0.0)
    if decision.outcome is not Outcome.SCHEDULED:
        return {}
    return {each.name: each.replicas for each in decision.clusters if each.replicas}
