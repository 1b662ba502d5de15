"""Karmada's binding as the control plane is asked to decide it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from bridge.karmada import KarmadaBinding
from bridge.requests import KARMADA_SCHEDULER, request_of
from federation.codec.bindings import binding_from_message
from federation.model.errors import InvalidRequest
from federation.v1 import resource_pb2
from lab.karmadas import PLACEMENT
from tests.unit.bridge.bindings import stored


def asked(
    binding: KarmadaBinding, *, as_karmada: bool = False, unknown: Counter[str] | None = None
) -> resource_pb2.ResourceBinding:
    unknown = Counter() if unknown is None else unknown
    return request_of(binding, scheduler="fedsched", as_karmada=as_karmada, unknown=unknown)


def test_a_binding_is_asked_for_with_where_it_runs_and_when_it_was_scheduled() -> None:
    binding = stored(
        clusters=[{"name": "m1", "replicas": 4}],
        schedulePriority={"priority": 7},
        rescheduleTriggeredAt="2026-03-01T12:00:00Z",
        gracefulEvictionTasks=[{"fromCluster": "m2", "producer": "TaintManager", "reason": "x"}],
        status={"lastScheduledTime": "2026-03-01T11:00:00Z"},
    )
    message = asked(binding)
    assert message.metadata.uid == "uid-web"
    assert message.metadata.annotations[KARMADA_SCHEDULER] == "fedsched"
    spec = message.spec
    assert [(each.name, each.replicas) for each in spec.clusters] == [("m1", 4)]
    assert spec.schedule_priority.priority == 7
    assert [each.from_cluster for each in spec.graceful_eviction_tasks] == ["m2"]
    assert spec.reschedule_triggered_at.seconds > message.status.last_scheduled_time.seconds
    assert spec.on_cluster_loss == "wait"
    assert not spec.scheduler_name
    assert not spec.placement.tie_break
    assert asked(binding, as_karmada=True).spec.placement.tie_break == "karmada"


def test_the_affinity_group_of_what_runs_is_told() -> None:
    binding = stored(status={"schedulerObservingAffinityName": "spare"})
    assert asked(binding).status.scheduler_observing_affinity_name == "spare"


@pytest.mark.parametrize("as_karmada", [False, True])
@pytest.mark.parametrize("failover", [False, True])
def test_a_placement_that_was_changed_is_told_from_one_that_was_applied(
    *, as_karmada: bool, failover: bool
) -> None:
    weighted: dict[str, Any] = {
        "clusterAffinity": {"clusterNames": ["m1", "m2"]},
        "clusterTolerations": [{"key": "lost", "effect": "NoExecute", "tolerationSeconds": 300}],
        "replicaScheduling": {"replicaSchedulingType": "Divided", "galaxyAffinity": "Orion"},
    }
    other = {**weighted, "clusterAffinity": {"clusterNames": ["m1"]}}

    def is_unsettled(applied: str | None) -> bool:
        clusters = [{"name": "m1", "replicas": 4}]
        binding = stored(placement=weighted, clusters=clusters, applied=applied)
        message = request_of(
            binding,
            scheduler="fedsched",
            as_karmada=as_karmada,
            failover=failover,
            unknown=Counter(),
        )
        return binding_from_message(message).is_unsettled

    assert not is_unsettled(json.dumps(weighted))
    assert is_unsettled(json.dumps(other))
    # As for Karmada's own scheduler: nobody says by which placement its clusters were chosen.
    assert is_unsettled(None)
    assert not is_unsettled("{")


def test_fields_of_newer_versions_are_counted_and_not_refused() -> None:
    unknown: Counter[str] = Counter()
    placement = {**PLACEMENT, "galaxyAffinity": {"arm": "Orion"}}
    components = [{"name": "a", "replicas": 1, "spin": 1}, {"name": "b", "replicas": 1, "spin": 2}]
    binding = stored(placement=placement, components=components, failover={"cluster": {}})
    asked(binding, unknown=unknown)
    assert unknown == {"spec.placement.galaxyAffinity": 1, "spec.components[].spin": 2}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"replicaRequirements": {"resourceRequest": {"cpu": True}}}, "resourceRequest"),
        ({"placement": {"clusterAffinity": "m1"}}, "spec.placement.clusterAffinity"),
    ],
    ids=["quantity", "affinity"],
)
def test_what_is_wrong_is_told_by_its_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        asked(stored(**spec))


def test_affinity_groups_are_those_that_karmada_read() -> None:
    binding = stored(
        placement={
            **PLACEMENT,
            "workloadAffinity": {
                "affinity": {"groupByLabelKey": "app"},
                "antiAffinity": {"groupByLabelKey": "tier"},
            },
        },
        workloadAffinityGroups={"affinityGroup": "shop", "antiAffinityGroup": "gold"},
    )
    assert dict(asked(binding).metadata.labels) == {"app": "shop", "tier": "gold"}


def test_who_tolerates_eviction_tolerates_its_taint_as_one_that_keeps_away() -> None:
    """Evicting is Karmada's own: its taints are told as taints that keep replicas away."""
    toleration = {
        "key": "gone",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 9,
    }
    message = asked(stored(placement={**PLACEMENT, "clusterTolerations": [toleration]}))
    told = [(each.key, each.effect) for each in message.spec.placement.cluster_tolerations]
    assert told == [("gone", "NoExecute"), ("gone", "NoSchedule")]


def test_with_failover_tolerations_are_as_they_are_written() -> None:
    toleration = {"key": "gone", "effect": "NoExecute", "tolerationSeconds": 9}
    message = request_of(
        stored(placement={**PLACEMENT, "clusterTolerations": [toleration]}),
        scheduler="fedsched",
        as_karmada=False,
        failover=True,
        unknown=Counter(),
    )
    told = message.spec.placement.cluster_tolerations
    assert [(each.effect, each.toleration_seconds) for each in told] == [("NoExecute", 9)]
    # Silence is no loss: a bridge that is away for long must not move anything.
    assert message.spec.on_cluster_loss == "wait"
