"""What is to be done about one binding: level-triggered, and nothing at rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridge.__main__ import bridge
from bridge.karmada import KarmadaBinding
from bridge.steps import Asked, BridgeStep, BridgeSurroundings, HeldBinding, next_step
from lab.karmadas import POLICY_LABEL, binding
from tests.unit.bridge.bindings import read, stored

AROUND = BridgeSurroundings(scheduler="fedsched", known=frozenset({"m1", "m2"}))
TWO = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]
AT_REST = {"schedulerObservedGeneration": 1}
HELD = HeldBinding(uid="uid-web", targets={"m1": 3, "m2": 1}, decision_id="d1")
ASKED = Asked(uid="uid-web", generation=1, decision_id="d1")


def resting(**spec: Any) -> KarmadaBinding:
    return stored(clusters=TWO, status=AT_REST, **spec)


@pytest.mark.parametrize("asked", [None, ASKED], ids=["after a restart", "before"])
def test_at_rest_there_is_nothing_to_do(asked: Asked | None) -> None:
    """Neither status nor annotations nor our own patches, once closed, ask for anything."""
    assert next_step(resting(), HELD, asked, AROUND) is BridgeStep.REST


def test_what_is_new_changed_or_unknown_to_the_control_plane_is_asked_for() -> None:
    assert next_step(stored(), None, None, AROUND) is BridgeStep.SCHEDULE
    assert next_step(resting(), None, None, AROUND) is BridgeStep.SCHEDULE
    changed = read({**binding("web", clusters=TWO), "status": {"schedulerObservedGeneration": 0}})
    assert next_step(changed, HELD, None, AROUND) is BridgeStep.SCHEDULE
    older = Asked(uid="uid-web", generation=0, decision_id="d1")
    assert next_step(stored(clusters=TWO), HELD, older, AROUND) is BridgeStep.SCHEDULE


def test_what_failed_is_not_asked_for_again_and_again() -> None:
    assert next_step(stored(clusters=TWO), HELD, ASKED, AROUND) is BridgeStep.REST


def test_what_the_control_plane_decided_by_itself_is_written() -> None:
    moved = HeldBinding(uid="uid-web", targets={"m2": 4}, decision_id="d2")
    for asked in (None, ASKED):
        assert next_step(resting(), moved, asked, AROUND) is BridgeStep.WRITE
    refused = Asked(uid="uid-web", generation=1, decision_id="d2")
    assert next_step(resting(), moved, refused, AROUND) is BridgeStep.REST
    waiting = HeldBinding(uid="uid-web", decision_id="d2")
    assert next_step(resting(), waiting, ASKED, AROUND) is BridgeStep.REST


@pytest.mark.parametrize(
    "spec", [{"schedulerName": "default-scheduler"}, {"schedulerName": ""}], ids=str
)
def test_bindings_of_another_scheduler_are_forgotten(spec: dict[str, Any]) -> None:
    """A new name in a policy moves new bindings only; ours is not the default."""
    assert next_step(resting(**spec), HELD, ASKED, AROUND) is BridgeStep.FORGET
    assert next_step(resting(**spec), None, None, AROUND) is BridgeStep.REST


def test_bindings_of_no_policy_are_not_ours() -> None:
    document = binding("web")
    document["metadata"]["labels"] = {POLICY_LABEL: ""}
    assert next_step(read(document), None, None, AROUND) is BridgeStep.REST


def test_deleted_and_replaced_bindings_are_forgotten() -> None:
    assert next_step(None, HELD, ASKED, AROUND) is BridgeStep.FORGET
    document = binding("web")
    document["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert next_step(read(document), HELD, ASKED, AROUND) is BridgeStep.FORGET
    other = HeldBinding(uid="another")
    assert next_step(resting(), other, ASKED, AROUND) is BridgeStep.FORGET


def test_suspension_follows_the_spec() -> None:
    suspended = resting(suspension={"scheduling": True})
    held = HeldBinding(uid="uid-web", targets={"m1": 4}, is_suspended=True)
    assert next_step(suspended, HELD, ASKED, AROUND) is BridgeStep.SUSPEND
    assert next_step(suspended, held, ASKED, AROUND) is BridgeStep.REST
    assert next_step(suspended, None, None, AROUND) is BridgeStep.REST
    assert next_step(resting(), held, ASKED, AROUND) is BridgeStep.RESUME


def test_a_deleted_cluster_is_left_once() -> None:
    """Karmada waits until no binding lists it."""
    around = BridgeSurroundings(
        scheduler="fedsched", known=frozenset({"m1"}), deleting=frozenset({"m2"})
    )
    assert next_step(resting(), HELD, ASKED, around) is BridgeStep.SCHEDULE
    # Whichever process asked about it last.
    assert next_step(resting(), HELD, None, around) is BridgeStep.SCHEDULE
    left = Asked(uid="uid-web", generation=1, decision_id="d1", leaving=frozenset({"m2"}))
    assert next_step(resting(), HELD, left, around) is BridgeStep.REST


def test_nothing_is_decided_on_half_a_fleet() -> None:
    """Clusters that the control plane has not got yet would count as gone."""
    around = BridgeSurroundings(
        scheduler="fedsched", known=frozenset({"m1"}), missing=frozenset({"m2"})
    )
    assert next_step(resting(), None, None, around) is BridgeStep.REST
    assert next_step(stored(clusters=TWO), None, None, around) is BridgeStep.REST
    nobody_knows = BridgeSurroundings(scheduler="fedsched", known=frozenset({"m1"}))
    assert next_step(resting(), None, None, nobody_knows) is BridgeStep.REST
    # What changed is decided by whom it can go to, as karmada-scheduler does.
    assert next_step(stored(clusters=TWO), None, None, nobody_knows) is BridgeStep.SCHEDULE


def test_a_bridge_waits_for_no_lease_of_karmadas_scheduler_and_has_a_name_of_its_own() -> None:
    """Both may run: the lease is another, and bindings without a name are not ours."""
    defaults = {each.name: each.default for each in bridge.params}
    assert defaults["lease_name"] == "fedsched-bridge"
    assert next_step(stored(schedulerName=""), None, None, AROUND) is BridgeStep.REST
    ours = replace(AROUND, scheduler="default-scheduler")
    assert next_step(stored(schedulerName=""), None, None, ours) is BridgeStep.SCHEDULE


def test_what_was_decided_and_not_written_is_written_and_not_decided_again() -> None:
    """A reschedule is due once: decided again it would be lost."""
    killed = HeldBinding(uid="uid-web", targets={"m2": 4}, decision_id="d2", asked_generation=1)
    assert next_step(stored(clusters=TWO), killed, None, AROUND) is BridgeStep.WRITE
    for generation in (0, -1):
        older = replace(killed, asked_generation=generation)
        assert next_step(stored(clusters=TWO), older, None, AROUND) is BridgeStep.SCHEDULE
    nowhere = replace(killed, targets={})
    assert next_step(stored(clusters=TWO), nowhere, None, AROUND) is BridgeStep.SCHEDULE
