"""A decision is made again from what it kept: the same, or the first difference is named."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.history.packed_inputs import CLUSTERS_PER_PART, InputPacker, InputReader
from federation.history.recorded import Recorded
from federation.model.arrays import IntArray, read_only
from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.errors import PreconditionFailed
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import Binding, SpreadConstraint
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason, stored_reason
from federation.model.workload import ObjectReference
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.plugins.filters import FILTERS, CapacityArgs
from federation.scheduler.plugins.permits import GangArgs, gang
from federation.scheduler.plugins.profile import (
    DEFAULT_PROFILE,
    DEFAULT_PROFILES,
    Filter,
    Permit,
    Profile,
    Profiles,
    Score,
)
from federation.scheduler.promisable import without_room
from federation.scheduler.replay import Difference, Replay
from federation.scheduler.state import NO_CONTEXT, BindingContext, CycleState
from federation.services.packed_traces import (
    packed_preview,
    packed_traces,
    unpacked_preview,
    unpacked_trace,
)
from federation.services.values import ReportEvidence, Verdict
from lab.decisions import make_decision
from tests.properties.test_scheduler_cycle import bindings, fleets, spread_over, spreads


@dataclass(frozen=True, slots=True, kw_only=True)
class FavouriteArgs:
    cluster: str = ""


def favourite(state: CycleState, args: FavouriteArgs) -> IntArray:
    """A plugin of somebody else."""
    return np.array([100 * (name == args.cluster) for name in state.fleet.names], dtype=np.int64)


STRICT = Profile(
    name="strict",
    filters=(
        *DEFAULT_PROFILE.filters,
        Filter(name="Capacity", run=partial(FILTERS["Capacity"], args=CapacityArgs())),
    ),
    scores=(
        *DEFAULT_PROFILE.scores,
        Score(name="Favourite", run=partial(favourite, args=FavouriteArgs(cluster="c2")), weight=3),
    ),
    permits=(Permit(name="Gang", run=partial(gang, args=GangArgs(min_available_percent=50))),),
)
PROFILES = Profiles.of([STRICT])
NAMES = st.sampled_from([f"c{number}" for number in range(8)])
SURROUNDINGS = st.builds(
    BindingContext,
    affinity_peers=st.lists(st.frozensets(NAMES, max_size=3), max_size=2).map(tuple),
    anti_affinity_peers=st.lists(st.frozensets(NAMES, max_size=3), max_size=2).map(tuple),
    triggers=st.just((Reason(ReasonCode.REPLICAS_CHANGED),)),
)
TELL_NOTHING = stored_reason("its pools tell nothing")
LOST = st.lists(st.sampled_from(["", "", "is stale", "cannot be seen"]), min_size=7, max_size=7)


def known(count: int, fits: list[int]) -> Estimates:
    replicas_c = np.array(fits, dtype=np.int64)
    return Estimates(
        replicas_c=replicas_c,
        source_c=np.where(replicas_c == 7, Source.NONE, Source.POOLS).astype(np.int8),
        bound_c=np.full(count, Bound.LOWER, dtype=np.int8),
        reasons={c: TELL_NOTHING for c in range(count) if fits[c] == 7},
    )


def recorded(verdict: Verdict, *company: Verdict) -> Recorded:
    """As it comes back out of the database, whatever was packed with it, and travels on."""
    packed = packed_traces([*company, verdict])[-1]
    assert packed.body == packed_traces([verdict])[0].body
    trace, evidence, promises = unpacked_trace(packed.body)
    assert trace.to_plain() == verdict.decision.trace.to_plain()
    assert (evidence, promises) == (verdict.evidence, verdict.promises)
    bodies = {name: body for shared in packed.shared for name, body in shared.bodies.items()}
    decision = verdict.decision
    record = Recorded(
        outcome=decision.outcome,
        clusters=decision.clusters,
        remainder=decision.remainder,
        reason=str(decision.reason),
        trace=packed.body,
        bodies=bodies,
    )
    return msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Recorded)


def assert_equal(replay: Replay) -> None:
    assert replay.difference is None
    assert replay.stored_sha256 == replay.replayed_sha256


@settings(max_examples=300, deadline=None)
@given(fleets(), bindings(), spreads(), SURROUNDINGS, LOST, st.sampled_from(["", "strict"]))
def test_a_decision_replays_equal(
    fleet: tuple[list[Cluster], dict[str, int]],
    binding: Binding,
    spread: tuple[SpreadConstraint, ...],
    surroundings: BindingContext,
    lost: list[str],
    profile: str,
) -> None:
    clusters, fits = fleet
    made_on = Fleet.of(clusters).without(Column.of(map(stored_reason, lost[: len(clusters)])))
    inputs = DecisionInputs(
        binding=spread_over(binding, spread),
        fleet=made_on,
        profile=STRICT if profile else DEFAULT_PROFILE,
        surroundings=surroundings,
    )
    decision = inputs.schedule(
        known(len(clusters), [fits[name] for name in made_on.names]), 1_000.25
    )
    seen = ReportEvidence(sequences=(3,) * len(clusters), age_seconds=(0.25,) * len(clusters))
    verdict = Verdict(decision=decision, evidence=seen, inputs=inputs)
    company = a_verdict(), replace(verdict, evidence=ReportEvidence())
    assert_equal(recorded(verdict, *company).replayed(InputReader(PROFILES)))
    if decision.clusters:
        refused = {decision.clusters[0].name: stored_reason("only 2 of 3 find room")}
        nowhere = without_room(decision, refused)
        nowhere = nowhere.explained(stored_reason("short of cpu in 1 cluster"))
        verdict = replace(verdict, decision=nowhere, refused=refused)
        assert_equal(recorded(verdict).replayed(InputReader(PROFILES)))


def test_what_preemption_adds_is_taken_from_the_decision() -> None:
    verdict = a_verdict()
    trace = replace(
        verdict.decision.trace, preempted=(stored_reason("shop/other: 2 in a, priority 1"),)
    )
    assert_equal(recorded(changed(verdict, trace=trace)).replayed(InputReader(DEFAULT_PROFILES)))


RICH = Cluster(
    name="a",
    uid="u",
    labels={"z": "1", "a": "2"},
    annotations={"note": "x"},
    provider="p",
    region="r",
    zones=("z1", "z2"),
    taints=(Taint(key="k", effect=TaintEffect.NO_EXECUTE, time_added=12.5),),
    ready=False,
    cordoned=True,
    api_enablements=frozenset({("apps/v1", "Deployment"), ("v1", "Pod")}),
)


def a_verdict(count: int = 3, profile: Profile = DEFAULT_PROFILE) -> Verdict:
    clusters = [RICH, *(Cluster(name=f"c{number:03}") for number in range(1, count))]
    binding = Binding(
        name="web", namespace="shop", replicas=5, resource=ObjectReference(uid="uid-1")
    )
    inputs = DecisionInputs(
        binding=binding, fleet=Fleet.of(clusters), profile=profile, surroundings=NO_CONTEXT
    )
    decision = inputs.schedule(known(count, [3] * count), 5.0)
    return Verdict(decision=decision, evidence=ReportEvidence(), inputs=inputs)


def changed(verdict: Verdict, **fields: Any) -> Verdict:
    return replace(verdict, decision=replace(verdict.decision, **fields))


def with_scores(decision: Decision, position: int) -> Decision:
    total_c = decision.trace.scoring.total_c.copy()
    total_c[position] += 1
    scoring = replace(decision.trace.scoring, total_c=total_c)
    return replace(decision, trace=replace(decision.trace, scoring=scoring))


def test_the_first_difference_is_named() -> None:
    verdict = a_verdict()
    decision = verdict.decision
    fewer = decision.clusters[:1]
    for stored, difference in (
        (
            changed(verdict, clusters=fewer),
            Difference(
                path="clusters[1]", stored="nothing", replayed=str({"name": "c002", "replicas": 5})
            ),
        ),
        (
            changed(verdict, remainder=4, outcome=Outcome.PARTIAL),
            Difference(path="outcome", stored="PARTIAL", replayed="SCHEDULED"),
        ),
        (
            replace(verdict, decision=with_scores(decision, 2)),
            Difference(path="trace.scoring.total_c[c002]", stored="1", replayed="0"),
        ),
        (
            changed(verdict, reason="x" * 10_000),
            Difference(path="reason", stored=f"{'x' * 500}...", replayed=""),
        ),
    ):
        replay = recorded(stored).replayed(InputReader(DEFAULT_PROFILES))
        assert replay.difference == difference
        assert replay.stored_sha256 != replay.replayed_sha256
        assert replay.decision.clusters == decision.clusters


def test_another_revision_is_told_and_compared_all_the_same() -> None:
    verdict = a_verdict()
    older = replace(verdict.decision.trace, algorithm_revision=0)
    replay = recorded(changed(verdict, trace=older)).replayed(InputReader(DEFAULT_PROFILES))
    assert_equal(replay)
    assert (replay.stored_revision, replay.replayed_revision) == (
        0,
        verdict.decision.trace.algorithm_revision,
    )


def test_a_plugin_that_is_not_there_is_named() -> None:
    with pytest.raises(PreconditionFailed, match="'Favourite'"):
        recorded(a_verdict(profile=STRICT)).replayed(InputReader(DEFAULT_PROFILES))


def test_a_preview_keeps_its_inputs() -> None:
    verdict = a_verdict()
    assert isinstance(verdict.inputs, DecisionInputs)
    packed = packed_preview(verdict.inputs.binding, verdict, wait=True)
    _, shown, _ = unpacked_preview(packed.body)
    bodies = {name: body for shared in packed.shared for name, body in shared.bodies.items()}
    record = msgspec.structs.replace(recorded(shown), bodies=bodies)
    assert_equal(record.replayed(InputReader(DEFAULT_PROFILES)))


def test_what_did_not_change_is_the_same_body() -> None:
    packer = InputPacker()
    verdict = a_verdict(2 * CLUSTERS_PER_PART)
    assert isinstance(verdict.inputs, DecisionInputs)
    kept, (fleet, profile) = packer.packed(verdict.inputs, {})
    assert packer.packed(verdict.inputs, {}) == (kept, (fleet, profile))
    assert len(fleet.bodies) == 3
    # In another process, from other objects.
    again, _ = InputPacker().packed(
        replace(verdict.inputs, fleet=Fleet.of(verdict.inputs.fleet.clusters)), {}
    )
    assert again == kept
    last = verdict.inputs.fleet.clusters[-1]
    newer = Fleet.of([*verdict.inputs.fleet.clusters[:-1], replace(last, region="elsewhere")])
    _, (other, _) = packer.packed(replace(verdict.inputs, fleet=newer), {})
    assert len(set(other.bodies) - set(fleet.bodies)) == 2
    # Nothing that a decision is made on.
    newer = Fleet.of([*verdict.inputs.fleet.clusters[:-1], replace(last, resource_version=9)])
    _, (other, _) = packer.packed(replace(verdict.inputs, fleet=newer), {})
    assert other.name == fleet.name


def test_what_was_packed_ends_without_the_garbage_collector() -> None:
    decision = make_decision(("a", 4))
    column = weakref.ref(read_only(decision.trace.scoring.total_c))
    gc.disable()
    try:
        packed_traces([Verdict(decision=decision, evidence=ReportEvidence())])
        del decision
        assert column() is None
    finally:
        gc.enable()
