"""What is to be done about one binding, from what both sides say of it.

Pure, and level-triggered: how it came to be so does not matter, and at rest there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum

from federation.bridge.karmada import KarmadaBinding
from federation.bridge.requests import asked_generation
from federation.model.waiting import SUSPENDED
from federation.v1.scheduling_pb2 import BindingEvent


class BridgeStep(StrEnum):
    """REST: nothing. SCHEDULE: ask the control plane. WRITE: write what it decided by itself.

    FORGET, SUSPEND and RESUME are for the control plane's copy of the binding.
    """

    REST = "rest"
    SCHEDULE = "schedule"
    WRITE = "write"
    FORGET = "forget"
    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBinding:
    """The control plane's copy: replicas by cluster, and the newest decision about it.

    ``replicas`` is how many it asks for. ``asked_generation`` is that of Karmada's binding when it
    was asked about.
    """

    uid: str
    replicas: int = 0
    asked_generation: int = -1
    targets: Mapping[str, int] = field(default_factory=dict)
    decision_id: str = ""
    is_suspended: bool = False

    @classmethod
    def of(cls, event: BindingEvent) -> HeldBinding:
        binding = event.binding
        return cls(
            uid=binding.metadata.uid,
            replicas=binding.spec.replicas,
            asked_generation=asked_generation(binding),
            targets={each.name: each.replicas for each in binding.spec.clusters},
            decision_id=event.decision_id,
            is_suspended=event.wait.gate == SUSPENDED,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the control plane was asked last, and which of its decisions is written, or refused."""

    uid: str
    generation: int
    leaving: frozenset[str] = frozenset()
    decision_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeSurroundings:
    """What a step depends on besides the binding.

    ``known`` clusters are in the control plane; ``missing`` ones only in Karmada yet; ``deleting``
    ones are to be left by all.
    """

    scheduler: str
    known: AbstractSet[str] = frozenset()
    missing: AbstractSet[str] = frozenset()
    deleting: AbstractSet[str] = frozenset()


def next_step(
    binding: KarmadaBinding | None,
    stored: HeldBinding | None,
    asked: Asked | None,
    around: BridgeSurroundings,
) -> BridgeStep:
    """``asked`` is None where nothing was asked yet, or where it has to be asked again."""
    if binding is None or binding.is_deleting or not binding.is_for(around.scheduler):
        return BridgeStep.FORGET if stored else BridgeStep.REST
    if stored and stored.uid and stored.uid != binding.uid:
        return BridgeStep.FORGET
    if binding.is_suspended:
        return BridgeStep.SUSPEND if stored and not stored.is_suspended else BridgeStep.REST
    if stored and stored.is_suspended:
        return BridgeStep.RESUME
    if not _may_be_asked(binding, stored, around):
        return BridgeStep.REST
    if asked is None or asked.uid != binding.uid or asked.generation != binding.generation:
        if asked or not stored:
            return BridgeStep.SCHEDULE
        moved = _moved(binding, stored)
        if moved is BridgeStep.WRITE and stored.asked_generation == binding.generation:
            # Who asked was killed before it was written: to ask again would be to decide twice.
            return moved
        is_seen = binding.observed_generation == binding.generation
        # Clusters that are deleted are left, whoever was asked about the binding before.
        is_settled = is_seen and not leaving(binding, around)
        return moved if is_settled else BridgeStep.SCHEDULE
    if not leaving(binding, around) <= asked.leaving:
        return BridgeStep.SCHEDULE
    if stored and stored.decision_id != asked.decision_id:
        return _moved(binding, stored)
    return BridgeStep.REST


def leaving(binding: KarmadaBinding, around: BridgeSurroundings) -> frozenset[str]:
    """The clusters of a binding that it has to leave."""
    return frozenset(binding.targets.keys() & around.deleting)


def _moved(binding: KarmadaBinding, stored: HeldBinding) -> BridgeStep:
    """The control plane decides by itself, too: what waited found room."""
    is_other = bool(stored.targets) and not _is_written(binding, stored)
    return BridgeStep.WRITE if is_other else BridgeStep.REST


def _is_written(binding: KarmadaBinding, stored: HeldBinding) -> bool:
    if not binding.is_workload or binding.spec.get("components"):
        return binding.targets.keys() == stored.targets.keys()
    return binding.targets == {name: count for name, count in stored.targets.items() if count}


def _may_be_asked(
    binding: KarmadaBinding, stored: HeldBinding | None, around: BridgeSurroundings
) -> bool:
    """Not while the control plane would take clusters for gone that only it has not got yet, nor
    where a binding at rest names some that nobody knows: it would be moved.
    """
    targets = binding.targets.keys()
    if not targets.isdisjoint(around.missing):
        return False
    is_at_rest = binding.observed_generation == binding.generation
    strange = targets - around.known - around.deleting
    return bool(stored) or not (is_at_rest and strange)
