"""What is to be done about one binding: level-triggered, and nothing at rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from bridge.__main__ import bridge
from bridge.karmada import KarmadaBinding
from bridge.steps import Asked, BridgeStep, BridgeSurroundings, HeldBinding, next_step
from lab.karmadas import POLICY_LABEL, binding
from tests.unit.bridge.bindings import read, stored

FORGET, REST, RESUME = BridgeStep.FORGET, BridgeStep.REST, BridgeStep.RESUME
SCHEDULE, SUSPEND, WRITE = BridgeStep.SCHEDULE, BridgeStep.SUSPEND, BridgeStep.WRITE
AROUND = BridgeSurroundings(scheduler="fedsched", known=frozenset({"m1", "m2"}))
HALF = replace(AROUND, known=frozenset({"m1"}))
LEAVING = replace(HALF, deleting=frozenset({"m2"}))
TWO: Final = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]
HELD = HeldBinding(uid="uid-web", targets={"m1": 3, "m2": 1}, decision_id="d1")
MOVED = HeldBinding(uid="uid-web", targets={"m2": 4}, decision_id="d2")
# Decided for this generation, and not written: its process was killed.
KILLED = replace(MOVED, asked_generation=1)
STOPPED = HeldBinding(uid="uid-web", targets={"m1": 4}, is_suspended=True)
ASKED = Asked(uid="uid-web", generation=1, decision_id="d1")


def resting(**spec: Any) -> KarmadaBinding:
    """A binding whose newest generation was seen."""
    return stored(clusters=TWO, status={"schedulerObservedGeneration": 1}, **spec)


def changed(generation: int | None = None) -> KarmadaBinding:
    """A binding whose newest generation was not seen."""
    status = {} if generation is None else {"schedulerObservedGeneration": generation}
    return stored(clusters=TWO, status=status)


def with_metadata(**metadata: Any) -> KarmadaBinding:
    document = binding("web")
    document["metadata"] |= metadata
    return read(document)


SUSPENDED: Final = resting(suspension={"scheduling": True})


@pytest.mark.parametrize(
    ("found", "held", "asked", "around", "step"),
    [
        # Neither status nor annotations nor our own patches, once closed, ask for anything.
        (resting(), HELD, None, AROUND, REST),
        (resting(), HELD, ASKED, AROUND, REST),
        # New, unknown to the control plane, changed, and asked about as an older generation.
        (stored(), None, None, AROUND, SCHEDULE),
        (resting(), None, None, AROUND, SCHEDULE),
        (changed(0), HELD, None, AROUND, SCHEDULE),
        (changed(), HELD, replace(ASKED, generation=0), AROUND, SCHEDULE),
        # It failed, and is not asked for again and again.
        (changed(), HELD, ASKED, AROUND, REST),
        # The control plane decided by itself, unless that was refused or places nothing.
        (resting(), MOVED, None, AROUND, WRITE),
        (resting(), MOVED, ASKED, AROUND, WRITE),
        (resting(), MOVED, replace(ASKED, decision_id="d2"), AROUND, REST),
        (resting(), HeldBinding(uid="uid-web", decision_id="d2"), ASKED, AROUND, REST),
        # A new name in a policy moves new bindings only; ours is not the default.
        (resting(schedulerName="default-scheduler"), HELD, ASKED, AROUND, FORGET),
        (resting(schedulerName="default-scheduler"), None, None, AROUND, REST),
        (resting(schedulerName=""), HELD, ASKED, AROUND, FORGET),
        (resting(schedulerName=""), None, None, AROUND, REST),
        (stored(schedulerName=""), None, None, AROUND, REST),
        (stored(schedulerName=""), None, None, replace(AROUND, scheduler="default-scheduler"),
         SCHEDULE),
        (with_metadata(labels={POLICY_LABEL: ""}), None, None, AROUND, REST),
        # Deleted and replaced bindings.
        (None, HELD, ASKED, AROUND, FORGET),
        (with_metadata(deletionTimestamp="2026-03-01T12:00:00Z"), HELD, ASKED, AROUND, FORGET),
        (resting(), HeldBinding(uid="another"), ASKED, AROUND, FORGET),
        # Suspension follows the spec.
        (SUSPENDED, HELD, ASKED, AROUND, SUSPEND),
        (SUSPENDED, STOPPED, ASKED, AROUND, REST),
        (SUSPENDED, None, None, AROUND, REST),
        (resting(), STOPPED, ASKED, AROUND, RESUME),
        # Karmada waits until no binding lists a deleted cluster: it is left once, whoever asked.
        (resting(), HELD, ASKED, LEAVING, SCHEDULE),
        (resting(), HELD, None, LEAVING, SCHEDULE),
        (resting(), HELD, replace(ASKED, leaving=frozenset({"m2"})), LEAVING, REST),
        # Clusters that the control plane has not got yet would count as gone.
        (resting(), None, None, replace(HALF, missing=frozenset({"m2"})), REST),
        (changed(), None, None, replace(HALF, missing=frozenset({"m2"})), REST),
        (resting(), None, None, HALF, REST),
        # What changed is decided by whom it can go to, as karmada-scheduler does.
        (changed(), None, None, HALF, SCHEDULE),
        # A reschedule is due once: decided again it would be lost.
        (changed(), KILLED, None, AROUND, WRITE),
        (changed(), replace(KILLED, asked_generation=0), None, AROUND, SCHEDULE),
        (changed(), replace(KILLED, asked_generation=-1), None, AROUND, SCHEDULE),
        (changed(), replace(KILLED, targets={}), None, AROUND, SCHEDULE),
    ],
)  # fmt: skip
def test_the_next_step_follows_from_what_there_is(
    found: KarmadaBinding | None,
    held: HeldBinding | None,
    asked: Asked | None,
    around: BridgeSurroundings,
    step: BridgeStep,
) -> None:
    assert next_step(found, held, asked, around) is step


def test_a_bridge_waits_for_no_lease_of_karmadas_scheduler() -> None:
    defaults = {each.name: each.default for each in bridge.params}
    assert defaults["lease_name"] == "fedsched-bridge"
