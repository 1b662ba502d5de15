"""What the control plane's answers mean for Karmada."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bridge.asking import Answers
from bridge.karmada import KarmadaBinding
from bridge.patches import BindingVerdict
from federation.v1 import scheduling_pb2
from federation.v1.resource_pb2 import TargetCluster
from federation.v1.scheduling_pb2 import ClusterTrace, Decision, Fact, ScheduleBatchResult, Trace
from lab.karmadas import DYNAMIC
from tests.unit.bridge.bindings import stored

TWO = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]
FILTERED = Trace(clusters=[ClusterTrace(name="m1", filter="ClusterAffinity")])
SPREAD = Trace(clusters=[ClusterTrace(name="m1")])


class ControlPlane:
    """Answers each binding with the same, and tells the same trace of every decision."""

    def __init__(self, result: ScheduleBatchResult, trace: Trace | None = None) -> None:
        self._result = result
        self._trace = trace

    async def schedule_batch(self, items: list[Any]) -> list[ScheduleBatchResult]:
        assert all(item.adopt for item in items)
        return [self._result] * len(items)

    async def get_decision(self, _: str) -> Decision:
        return Decision(id="d1", trace=self._trace)


async def verdict_of(
    binding: KarmadaBinding,
    result: ScheduleBatchResult,
    trace: Trace | None = None,
    *,
    as_karmada: bool = False,
    is_current: bool = True,
    deleting: frozenset[str] = frozenset(),
) -> BindingVerdict:
    client: Any = ControlPlane(result, trace)
    answers = Answers(
        client,
        scheduler="fedsched",
        as_karmada=as_karmada,
        failover=False,
        unknown=Counter(),
        is_current=lambda: is_current,
    )
    verdict, _ = (await answers.ask([binding], deleting))[binding.key]
    return verdict


def result_of(outcome: Any, **fields: Any) -> ScheduleBatchResult:
    decision = Decision(id="d1", outcome=outcome, reason="because", **fields)
    return ScheduleBatchResult(decision=decision)


async def test_what_is_placed_is_written_with_the_affinity_that_was_taken() -> None:
    placement = {
        "clusterAffinities": [{"affinityName": "near"}, {"affinityName": "far"}],
        "replicaScheduling": DYNAMIC,
    }
    placed = result_of(
        scheduling_pb2.OUTCOME_SCHEDULED, clusters=[TargetCluster(name="m1", replicas=4)]
    )
    trace = Trace(facts=[Fact(name="affinityGroup", value="far")])
    verdict = await verdict_of(stored(placement=placement), placed, trace)
    assert verdict.is_scheduled
    assert verdict.targets == {"m1": 4}
    assert verdict.affinity == "far"


@pytest.mark.parametrize(
    ("as_karmada", "is_current", "trace", "targets"),
    [
        (False, True, FILTERED, None),
        (True, True, FILTERED, {}),
        (True, True, SPREAD, None),
        (True, False, FILTERED, None),
    ],
    ids=["ours", "as Karmada", "spread", "clusters not seen"],
)
async def test_a_placement_is_emptied_only_where_no_cluster_fits_and_all_are_seen(
    *, as_karmada: bool, is_current: bool, trace: Trace, targets: dict[str, int] | None
) -> None:
    verdict = await verdict_of(
        stored(clusters=TWO),
        result_of(scheduling_pb2.OUTCOME_NO_FIT),
        trace,
        as_karmada=as_karmada,
        is_current=is_current,
    )
    assert (verdict.reason, verdict.message) == ("NoClusterFit", "because")
    assert verdict.targets == targets


async def test_too_little_room_keeps_all_but_what_is_deleted() -> None:
    refused = result_of(scheduling_pb2.OUTCOME_UNSCHEDULABLE)
    verdict = await verdict_of(stored(clusters=TWO), refused)
    assert (verdict.reason, verdict.targets) == ("Unschedulable", None)
    verdict = await verdict_of(stored(clusters=TWO), refused, deleting=frozenset({"m2"}))
    assert verdict.targets == {"m1": 3}


@pytest.mark.parametrize(("reason", "is_passing"), [("INVALID_REQUEST", False), ("ABORTED", True)])
async def test_a_wrong_binding_is_told_and_a_passing_fault_tried_again(
    reason: str, *, is_passing: bool
) -> None:
    wrong = result_of(scheduling_pb2.OUTCOME_INVALID)
    wrong.error_reason = reason
    wrong.violations.add(field="spec.replicas", rule="must be less")
    verdict = await verdict_of(stored(), wrong)
    assert (verdict.reason, verdict.message) == ("SchedulerError", "spec.replicas: must be less")
    assert verdict.is_passing is is_passing
