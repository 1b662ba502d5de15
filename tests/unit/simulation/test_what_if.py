"""Results of what-ifs: the same without a change, and what a change would have made of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.history.trace_files import TracedDecision, TracedDeletion, TraceFile
from federation.model.arrays import BoolArray
from federation.model.cluster import (
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
    ResourceSummary,
    Taint,
    TaintEffect,
)
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding, Placement
from federation.model.reasons import NO_REASON, stored_reason
from federation.scheduler.decision import Outcome
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.plugins.profile import (
    DEFAULT_PROFILE,
    DEFAULT_PROFILES,
    Filter,
    Profiles,
)
from federation.scheduler.state import CycleState
from federation.services.packed_traces import packed_traces
from federation.services.values import Verdict
from federation.simulation import what_if
from federation.simulation.changes import ChangedFleets, WhatIfChange
from federation.simulation.figures import Axes, WhatIf
from federation.simulation.what_if_runs import played, windows_of
from lab.traces import (
    AGGREGATED,
    BEGAN,
    CPU,
    Storm,
    corpus,
    fleet_of,
    requests,
    traced,
    web,
    write_trace,
)

NOTHING = WhatIfChange()


def all_of(path: Path, change: WhatIfChange = NOTHING, seconds: int = 0) -> WhatIf:
    trace = TraceFile.opened(path)
    windows = windows_of(trace, seconds)
    came = WhatIf()
    for window in windows:
        came = came.then(played(trace, change, DEFAULT_PROFILES, window))
    return came


def storm_of(room: int, clusters: int = 4) -> Storm:
    fleet = fleet_of(clusters)
    return Storm(fleet, {cluster.name: room for cluster in fleet})


def aggregated(_: Binding) -> Placement:
    return AGGREGATED


def played_storm(path: Path, verdicts: Iterable[Verdict], change: WhatIfChange = NOTHING) -> WhatIf:
    return all_of(write_trace(path, *traced(verdicts), in_chunk=7), change)


def test_with_nothing_changed_the_corpus_comes_out_as_it_was(tmp_path: Path) -> None:
    decisions, bodies = corpus()
    path = write_trace(tmp_path / "corpus.trace", decisions, bodies)
    came = all_of(path)
    assert (came.decisions, came.different, came.skipped) == (len(decisions), 0, 0), came
    assert came.recorded == came.changed
    assert came.sha256 == all_of(path).sha256
    # Its windows as well.
    assert all_of(path, seconds=60).different == 0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([6, 15, 200]))
def test_a_changed_decision_changes_what_later_ones_see(
    tmp_path_factory: pytest.TempPathFactory, seed: int, room: int
) -> None:
    """The result equals that of the same requests on clusters with this capacity."""
    stream = [
        replace(request, requirements=web(0, 1).requirements) for request in requests(40, seed)
    ]
    path = tmp_path_factory.getbasetemp() / "storm.trace"
    storm = storm_of(room)
    verdicts = [storm.asked(request, BEGAN + n) for n, request in enumerate(stream)]
    other = storm_of(room)
    oracle = [
        other.asked(replace(request, placement=AGGREGATED), BEGAN + n)
        for n, request in enumerate(stream)
    ]
    assert played_storm(path, verdicts).different == 0
    with pytest.MonkeyPatch.context() as patch:
        # Who waits is not tried again in between: the oracle does not either.
        patch.setattr(what_if, "RETRY_SECONDS", float("inf"))
        came = played_storm(path, verdicts, WhatIfChange(placement_of=aggregated))
    were = [(verdict.decision.outcome, verdict.decision.clusters) for verdict in verdicts]
    are = [(verdict.decision.outcome, verdict.decision.clusters) for verdict in oracle]
    differ = sum(was != now for was, now in zip(were, are, strict=True))
    assert came.different == differ
    for difference in came.first_different:
        outcome, clusters = are[int(difference.id, 16)]
        shares = ", ".join(f"{at.name}={at.replicas}" for at in clusters)
        assert difference.changed == f"{outcome} {shares}".rstrip()
    placed = sum(at.replicas for target in other.placed.values() for at in target.clusters)
    assert sum(came.changed.placed.values()) == placed


def test_who_waits_by_the_change_is_tried_again_when_there_is_room(tmp_path: Path) -> None:
    storm = storm_of(10, clusters=2)
    stream = [web(0, 8), web(1, 8), web(0, 1), web(2, 1)]
    verdicts = [storm.asked(request, BEGAN + 60 * n) for n, request in enumerate(stream)]
    came = played_storm(
        tmp_path / "a.trace", verdicts, WhatIfChange(cordoned=frozenset({"member001"}))
    )
    # The second finds 2 of 8; once the first shrinks it gets 7 more, though nobody asks again.
    assert came.retried == 1
    assert came.changed.bindings_waited == 1
    assert sum(came.changed.pending.values()) == 0
    assert came.changed.longest_wait == 60
    assert sum(came.changed.waited.values()) == 6 * 60
    assert came.recorded.bindings_waited == 0


def test_a_binding_that_found_its_place_holds_up_no_other_of_its_kind(tmp_path: Path) -> None:
    storm = storm_of(10, clusters=2)
    stream = [web(0, 8), web(1, 8), web(2, 4), web(0, 2), web(1, 3), web(5, 1)]
    verdicts = [storm.asked(request, BEGAN + 60 * n) for n, request in enumerate(stream)]
    came = played_storm(
        tmp_path / "a.trace", verdicts, WhatIfChange(cordoned=frozenset({"member001"}))
    )
    # The second gets what the first gives up, and the third what the second does.
    assert came.changed.bindings_waited == 2
    assert came.retried == 2
    assert sum(came.changed.pending.values()) == 0


def test_what_is_deleted_makes_room_in_both_worlds(tmp_path: Path) -> None:
    storm = storm_of(10, clusters=2)
    verdicts = [storm.asked(web(n, 8), BEGAN + 60 * n) for n in range(2)]
    storm.room["member000"] += storm.placed["team0", "web-0"].clusters[0].replicas
    storm.room["member001"] += storm.placed["team0", "web-0"].clusters[1].replicas
    verdicts.append(storm.asked(web(2, 1), BEGAN + 200))
    gone = TracedDeletion(namespace="team0", name="web-0", at=(BEGAN + 100) * 1_000_000)
    change = WhatIfChange(cordoned=frozenset({"member001"}))
    path = write_trace(tmp_path / "a.trace", *traced(verdicts), deletions=[gone])
    same, came = all_of(path), all_of(path, change)
    assert (same.different, same.retried) == (0, 0)
    # The second waits for 6 replicas by the change, until the first is gone.
    assert (came.retried, came.changed.longest_wait) == (1, 40)
    assert came.changed.replicas == {"member000": 9}
    assert sum(same.recorded.placed.values()) == 9


def test_who_is_elsewhere_leaves_clusters_that_are_lost_then(tmp_path: Path) -> None:
    storm = storm_of(10, clusters=3)
    first = storm.asked(web(0, 3, AGGREGATED), BEGAN)
    (home,) = first.decision.clusters
    verdicts = [first, storm.asked(web(1, 1), BEGAN + 10)]
    # By the change it is in the first of the others, which is lost then.
    elsewhere = all_of(
        write_trace(tmp_path / "a.trace", *traced(verdicts)),
        WhatIfChange(without=frozenset({home.name})),
    )
    (moved,) = [
        difference
        for difference in elsewhere.first_different
        if difference.binding == "team0/web-0"
    ]
    refuge = moved.changed.split()[1].partition("=")[0]
    taint = Taint(key="lost", effect=TaintEffect.NO_EXECUTE, time_added=float(BEGAN))
    storm.fleet = Fleet.of(
        replace(cluster, taints=(taint,) if cluster.name == refuge else ())
        for cluster in storm.clusters
    )
    verdicts.append(storm.asked(web(2, 1), BEGAN + 20))
    came = played_storm(
        tmp_path / "b.trace", verdicts, WhatIfChange(without=frozenset({home.name}))
    )
    assert came.retried == 1
    last = {cluster.name for cluster in storm.fleet.clusters} - {home.name, refuge}
    assert set(came.changed.replicas) == last
    assert sum(came.changed.moved.values()) == 3


def test_clusters_with_other_labels_and_new_ones(tmp_path: Path) -> None:
    storm = storm_of(4, clusters=2)
    verdicts = [storm.asked(web(n, 4), BEGAN + n) for n in range(3)]
    total = {"cpu": 40 * CPU, "pods": 100}
    report = CapacityReport(
        epoch=1,
        sequence=1,
        snapshot_time=float(BEGAN),
        nodes=NodeSummary(total=1, ready=1),
        summary=ResourceSummary(allocatable=total),
    )
    new = ClusterState(cluster=Cluster(name="new"), report=report, as_of=float(BEGAN))
    gold = ClusterState(cluster=Cluster(name="member000", cordoned=True))
    came = played_storm(
        tmp_path / "a.trace", verdicts, WhatIfChange(clusters={"new": new, "member000": gold})
    )
    assert came.changed.replicas["member000"] == 0
    assert came.changed.replicas["new"] >= 8
    assert sum(came.changed.pending.values()) == 0
    assert sum(came.recorded.pending.values()) == 4
    assert came.clusters == {"member000", "member001"}


def refuse_all(state: CycleState) -> list[tuple[BoolArray, str]]:
    return [(np.ones(len(state.fleet), np.bool_), "refuses all")]


def test_profiles_of_the_same_name_decide(tmp_path: Path) -> None:
    storm = storm_of(10)
    path = write_trace(tmp_path / "a.trace", *traced([storm.asked(web(0, 3), BEGAN)]))
    nowhere = replace(DEFAULT_PROFILE, name="other", filters=())
    assert all_of(path, WhatIfChange(profiles=Profiles.of([nowhere]))).different == 0
    no_filter_passes = replace(DEFAULT_PROFILE, filters=(Filter(name="None", run=refuse_all),))
    came = all_of(path, WhatIfChange(profiles=Profiles.of([no_filter_passes])))
    assert came.changed.outcomes == {Outcome.NO_FIT: 1}


def test_what_was_lost_is_lost_and_what_was_forgotten_is_taken_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would have room again at once.
    monkeypatch.setattr(what_if, "RETRY_SECONDS", float("inf"))
    storm = storm_of(10, clusters=2)
    verdict = storm.asked(web(0, 6), BEGAN)
    lost = replace(
        verdict,
        inputs=None,
        decision=replace(
            verdict.decision,
            clusters=tuple(replace(e, replicas=e.replicas - 1) for e in verdict.decision.clusters),
            remainder=2,
            outcome=Outcome.PARTIAL,
        ),
    )
    decisions, bodies = traced([verdict])
    further, _ = traced([replace(lost, inputs=verdict.inputs)])
    bare = packed_traces([lost])[0].body
    loss = msgspec.structs.replace(
        further[0], at=further[0].at + 10_000_000, id="f" * 32, trace=bare
    )
    path = write_trace(tmp_path / "a.trace", [*decisions, loss], bodies)
    same = all_of(path)
    assert (same.different, same.skipped) == (0, 0)
    assert sum(same.changed.placed.values()) == 4
    came = all_of(path, WhatIfChange(without=frozenset({"member000"})))
    # All six are in the other one, where one was lost.
    assert came.changed.replicas == {"member001": 5}
    forgotten = all_of(write_trace(tmp_path / "b.trace", [*decisions, loss], {}))
    assert (forgotten.different, forgotten.skipped) == (0, 1)


def test_windows_have_every_decision_once(tmp_path: Path) -> None:
    storm = storm_of(100)
    verdicts = [storm.asked(request, BEGAN + n) for n, request in enumerate(requests(100, 3))]
    path = write_trace(tmp_path / "a.trace", *traced(verdicts), in_chunk=9)
    trace = TraceFile.opened(path)
    for seconds in (0, 7, 20, 1000):
        came = all_of(path, seconds=seconds)
        assert (came.decisions, came.different) == (100, 0)
    assert len(windows_of(trace, 7)) == 15
    far = msgspec.structs.replace(traced(verdicts[:1])[0][0], at=2**62)
    decisions: list[TracedDecision] = [*traced(verdicts[:1])[0], far]
    trace = TraceFile.opened(write_trace(path, decisions, {}, in_chunk=1))
    with pytest.raises(InvalidRequest, match="more than 10000 windows of 60 s"):
        windows_of(trace, 60)
    assert windows_of(TraceFile.opened(write_trace(path, [], {})), 60) == []


def test_a_cordon_with_a_reason_ends_with_the_change_and_silence_does_not() -> None:
    cordoned = Cluster(name="a", cordoned=True, cordon_reason="repair; until noon")
    stale = stored_reason("is stale: its agent is silent")
    recorded = Fleet.of([cordoned, Cluster(name="b"), Cluster(name="c")]).without(
        Column.of([NO_REASON, stale, NO_REASON])
    )
    specs = {name: ClusterState(cluster=Cluster(name=name)) for name in "ab"}
    changed = ChangedFleets(WhatIfChange(clusters=specs), Axes()).of(recorded)
    assert changed.fleet.ready_c.tolist() == [True, False, True]
    assert changed.fleet.unready[1] == stale
    changed = ChangedFleets(WhatIfChange(cordoned=frozenset({"c"})), Axes()).of(recorded)
    assert list(map(str, changed.fleet.unready.values)) == [
        "is cordoned (repair; until noon)",
        "",
        "is cordoned",
        "",
        str(stale),
    ]
