"""What ResourceQuotas leave, by hand-made cases."""

from __future__ import annotations

import pytest

from estimator.estimation.quota import Quota, sets_allowed
from federation.model.estimate import MAX_REPLICAS
from federation.model.workload import Component, Operator, ReplicaRequirements, Requirement

CRITICAL = Requirement(key="PriorityClass", operator=Operator.IN, values=("critical",))


def component(replicas: int = 1, priority: str = "", **request: int) -> Component:
    requirements = ReplicaRequirements(
        request=request, namespace="shop", priority_class_name=priority
    )
    return Component(name="", replicas=replicas, requirements=requirements)


def quota(*scopes: Requirement, namespace: str = "shop", **left: int) -> Quota:
    return Quota(namespace=namespace, name="q", left=left, scopes=scopes)


@pytest.mark.parametrize(
    ("quotas", "allowed"),
    [
        ([], MAX_REPLICAS),
        ([quota(cpu=1000)], 4),
        ([quota(cpu=1000), quota(cpu=600)], 2),
        ([quota(cpu=1000, memory=300)], 3),
        ([quota(cpu=1000, pods=3)], 3),
        ([quota(cpu=0)], 0),
        ([quota(cpu=1000, namespace="other")], MAX_REPLICAS),
        ([quota(memory=0, storage=0)], 0),
        ([quota(storage=0)], MAX_REPLICAS),
    ],
)
def test_tightest_quota_of_the_namespace_decides(quotas: list[Quota], allowed: int) -> None:
    assert sets_allowed(quotas, [component(cpu=250, memory=100)]) == allowed


@pytest.mark.parametrize(
    ("scope", "priority", "counts"),
    [
        (CRITICAL, "critical", True),
        (CRITICAL, "low", False),
        (CRITICAL, "", False),
        (Requirement(key="PriorityClass", operator=Operator.EXISTS), "low", True),
        (Requirement(key="PriorityClass", operator=Operator.EXISTS), "", False),
        (Requirement(key="PriorityClass", operator=Operator.DOES_NOT_EXIST), "", True),
        (Requirement(key="BestEffort", operator=Operator.EXISTS), "", False),
    ],
)
def test_scopes_choose_what_is_counted(scope: Requirement, priority: str, *, counts: bool) -> None:
    allowed = sets_allowed([quota(scope, cpu=0)], [component(cpu=1, priority=priority)])
    assert allowed == (0 if counts else MAX_REPLICAS)


def test_every_scope_must_hold() -> None:
    exists = Requirement(key="PriorityClass", operator=Operator.EXISTS)
    both = [quota(CRITICAL, exists, cpu=0)]
    assert sets_allowed(both, [component(cpu=1, priority="low")]) == MAX_REPLICAS
    assert sets_allowed(both, [component(cpu=1, priority="critical")]) == 0


def test_a_set_takes_what_its_components_sum_to() -> None:
    workload = [component(cpu=100), component(4, cpu=200, priority="critical")]
    assert sets_allowed([quota(cpu=1800)], workload) == 2
    assert sets_allowed([quota(CRITICAL, cpu=1800)], workload) == 2
    assert sets_allowed([quota(CRITICAL, cpu=1599)], workload) == 1


def test_assumed_workloads_are_deducted_where_they_count() -> None:
    held = [component(2, cpu=300)]
    assert sets_allowed([quota(cpu=1000)], [component(cpu=100)], [held]) == 4
    assert sets_allowed([quota(cpu=1000)], [component(cpu=100)], [held, held]) == 0
    assert (
        sets_allowed([quota(CRITICAL, cpu=1000)], [component(cpu=1, priority="critical")], [held])
        == 1000
    )
