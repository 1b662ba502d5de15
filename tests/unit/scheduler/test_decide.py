"""One decision of a draft: shares without a reservation, capacity kept for others, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from federation.capacity.careful import NOT_REHEARSED
from federation.model.cluster import Cluster, ClusterState
from federation.model.estimate import Estimates
from federation.model.placement import Binding, ReplicaScheduling
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason, Text
from federation.model.workload import TargetCluster
from federation.scheduler.decide import LAPSED, Decided, Draft, OfferedCapacity, decide
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILE
from federation.scheduler.replay import RecordedCapacity
from federation.scheduler.state import BindingContext
from federation.scheduler.waiting.kept import room_is_kept_for
from federation.simulation.capacity import SimulatedCapacity, SimulationOptions
from tests.unit.scheduler.states import estimates, web

NOW = 5.0
NOTHING_LEFT = Reason.of(ReasonCode.STORED_TEXT, Text("no capacity was left"))
STATES = [ClusterState(cluster=Cluster(name=name)) for name in "ab"]
FLEET = Fleet.of(state.cluster for state in STATES)
THERE = (TargetCluster(name="a", replicas=2),)


def draft_of(binding: Binding, unreserved: Sequence[TargetCluster] = ()) -> Draft:
    return Draft(
        binding=binding,
        remaining=binding,
        profile=DEFAULT_PROFILE,
        surroundings=BindingContext(is_settled=bool(binding.clusters)),
        unreserved=unreserved,
    )


def on_record(draft: Draft, *replicas: int, refused: str | None = None) -> Decided[None]:
    reasons = {} if refused is None else {refused: NOTHING_LEFT}
    return decide(FLEET, draft, RecordedCapacity(estimates(replicas), reasons), NOW)


def placed(decided: Decided[None]) -> dict[str, int]:
    return {target.name: target.replicas for target in decided.decision.clusters}


def test_a_share_without_a_reservation_stays_where_it_finds_capacity_again() -> None:
    binding = web(2, prior={"a": 2})
    decided = on_record(draft_of(binding, THERE), 3, 9)
    assert placed(decided) == {"a": 2}
    assert decided.lapsed == {}
    # The share takes its capacity once more, so that much less is available.
    assert decided.decision.trace.inputs.available_c.tolist() == [1, 9]


def test_a_share_without_a_reservation_leaves_a_cluster_without_capacity() -> None:
    binding = web(2, prior={"a": 2})
    decided = on_record(draft_of(binding, THERE), 1, 9)
    assert decided.lapsed == {"a": LAPSED}
    assert decided.inputs.binding.clusters == ()
    assert not decided.inputs.surroundings.is_settled
    assert sum(placed(decided).values()) == 2
    assert decided.decision.trace.inputs.previous_c.tolist() == [-1, -1]


def test_shares_that_find_no_capacity_are_not_placed() -> None:
    draft = draft_of(web(2))
    decided = on_record(draft, 9, 9, refused="b")
    assert decided.decision.outcome is Outcome.UNSCHEDULABLE
    assert (
        str(decided.decision.reason) == "there is no room for the shares: b: no capacity was left"
    )
    assert decided.decision.remainder == 2
    assert decided.refused == {"b": NOTHING_LEFT}
    objected = on_record(draft, 9, 9, refused="")
    assert str(objected.decision.reason) == "no capacity was left"


class NotedCapacity(SimulatedCapacity):
    """A second look finds no more, and leaves a note on the first cluster."""

    def available(self, draft: Draft) -> OfferedCapacity:
        return OfferedCapacity(estimates((3, 2)))

    def refine(self, draft: Draft, decided: Decided[None], estimates: Estimates) -> Estimates:
        return replace(estimates, reasons={0: NOT_REHEARSED})


def test_a_second_look_that_finds_no_more_adds_its_note_without_another_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cycles = list[Estimates]()
    schedule = DecisionInputs.schedule

    def counted(inputs: DecisionInputs, available: Estimates, now: float) -> Decision:
        cycles.append(available)
        return schedule(inputs, available, now)

    monkeypatch.setattr(DecisionInputs, "schedule", counted)
    capacity = NotedCapacity.of(
        STATES, SimulationOptions(), lambda _, available: OfferedCapacity(available)
    )
    decided = decide(FLEET, draft_of(web(9)), capacity, NOW)
    assert len(cycles) == 1
    assert decided.decision.outcome is Outcome.UNSCHEDULABLE
    assert decided.decision.trace.inputs.estimate_reasons == {0: NOT_REHEARSED}
    assert str(decided.decision.reason).endswith(f"; a: {NOT_REHEARSED}")
    assert not decided.is_refined


def test_capacity_that_is_kept_for_others_ends_the_reason() -> None:
    def kept(draft: Draft, available: Estimates) -> OfferedCapacity:
        assert draft.binding.replicas == 3
        nothing = replace(available, replicas_c=np.zeros_like(available.replicas_c))
        return OfferedCapacity(nothing, room_is_kept_for(["shop/first"]))

    options = SimulationOptions(available_replicas={"a": 5, "b": 5})
    capacity = SimulatedCapacity.of(STATES, options, kept)
    decided = decide(FLEET, draft_of(web(3)), capacity, NOW)
    assert decided.decision.outcome is Outcome.UNSCHEDULABLE
    assert str(decided.decision.reason).endswith(
        "; room is kept for shop/first, which waited before"
    )


def test_a_simulation_refuses_what_totals_do_not_hold_as_the_service_does() -> None:
    options = SimulationOptions(available_replicas={"a": 5, "b": 2}, reserve=True)
    capacity = SimulatedCapacity.of(
        STATES, options, lambda _, available: OfferedCapacity(available)
    )
    duplicated = ReplicaScheduling()
    draft = draft_of(web(4, replica_scheduling=duplicated))
    decided = decide(FLEET, draft, capacity, NOW)
    assert decided.decision.outcome is Outcome.UNSCHEDULABLE
    refusal = "b: there is room for 2 more, not 4"
    assert str(decided.decision.reason) == f"there is no room for the shares: {refusal}"
    # All replicas of both clusters have no place.
    assert decided.decision.remainder == 8
    # Nothing was taken: what fits is placed afterwards.
    assert placed(
        decide(FLEET, draft_of(web(2, replica_scheduling=duplicated)), capacity, NOW)
    ) == {"a": 2, "b": 2}
    assert capacity.estimates(web(1), None).replicas_c.tolist() == [3, 0]
