"""Why a binding is decided again, and which clusters it has to leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.placement import Binding, Placement
from federation.model.workload import (
    Component,
    ReplicaRequirements,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.fleet import Fleet
from federation.scheduler.triggers import evicting_taints, leaving, triggers_of

LOST = Taint(key="lost", value="yes", effect=TaintEffect.NO_EXECUTE, time_added=100.0)
FULL = Taint(key="full", effect=TaintEffect.NO_SCHEDULE)
FLEET = Fleet.of(
    [
        Cluster(name="a", taints=(FULL,)),
        Cluster(name="b", taints=(FULL, LOST)),
        Cluster(name="c", taints=(LOST,)),
    ]
)
WEB = Binding(
    name="web",
    replicas=3,
    clusters=tuple(TargetCluster(name=name, replicas=1) for name in ("a", "b", "gone")),
    last_scheduled_time=50.0,
)


def test_only_no_execute_taints_of_its_own_clusters_evict() -> None:
    taints = evicting_taints(WEB, FLEET, now=200.0)
    assert taints == {"b": "lost=yes:NoExecute"}
    assert [target.name for target in leaving(WEB, taints).clusters] == ["a", "gone"]


@pytest.mark.parametrize(
    ("seconds", "now", "evicted"),
    [(None, 1e9, False), (60, 159.9, False), (60, 160.0, True), (-5, 100.0, True)],
)
def test_a_toleration_lasts_its_seconds(seconds: int | None, now: float, *, evicted: bool) -> None:
    toleration = Toleration(
        operator=TolerationOperator.EXISTS,
        effect=TaintEffect.NO_EXECUTE,
        toleration_seconds=seconds,
    )
    tolerant = replace(WEB, placement=Placement(tolerations=(toleration,)))
    assert bool(evicting_taints(tolerant, FLEET, now)) is evicted


def test_nothing_to_leave_is_the_same_binding() -> None:
    assert leaving(WEB, {}) is WEB


def told(*arguments: Any, **options: Any) -> tuple[str, ...]:
    return tuple(map(str, triggers_of(*arguments, **options)))


def test_triggers_are_told_in_words() -> None:
    taints = {"b": "lost=yes:NoExecute"}
    assert told(None, WEB, FLEET, {}) == ("the binding is new",)
    assert told(WEB, WEB, FLEET, taints) == (
        "cluster b has the untolerated taint lost=yes:NoExecute",
        "cluster gone is gone",
    )
    staying = replace(WEB, clusters=WEB.clusters[:1])
    assert told(staying, staying, FLEET, {}) == ("asked again, nothing changed",)
    assert told(staying, replace(staying, fresh=True), FLEET, {}) == ("a reschedule was triggered",)
    unplaced = replace(staying, last_scheduled_time=None)
    assert told(unplaced, unplaced, FLEET, {}) == ("it was never placed",)


def test_components_count_by_replicas_and_by_requirements() -> None:
    parts = (Component(name="ps", replicas=1), Component(name="worker", replicas=4))
    before = Binding(name="train", components=parts, last_scheduled_time=50.0)
    more = replace(before, components=(parts[0], replace(parts[1], replicas=5)))
    assert told(before, more, FLEET, {}) == ("replicas changed",)
    hungry = replace(parts[1], requirements=ReplicaRequirements(request={"cpu": 1}))
    heavier = replace(before, components=(parts[0], hungry))
    assert told(before, heavier, FLEET, {}) == ("requirements changed",)
