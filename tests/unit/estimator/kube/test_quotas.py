"""ResourceQuotas as the API server stores them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from estimator.estimation.quota import Quota
from estimator.kube.quotas import RawQuota, quota_from_raw
from estimator.kube.translate import Untranslatable
from federation.model.workload import Operator, Requirement


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> Quota:
    document = {
        "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": hard, **spec},
        "status": {} if used is None else {"hard": hard, "used": used},
    }
    return quota_from_raw(msgspec.convert(document, RawQuota))


@pytest.mark.parametrize(
    ("hard", "used", "left"),
    [
        ({"cpu": "2"}, {"cpu": "500m"}, {"cpu": 1500}),
        ({"requests.cpu": "2", "cpu": "1"}, {}, {"cpu": 1000}),
        ({"requests.memory": "1Gi"}, {"requests.memory": "2Gi"}, {"memory": 0}),
        ({"memory": "1500m"}, {"memory": "400m"}, {"memory": 1}),
        ({"requests.nvidia.com/gpu": "4"}, {}, {"nvidia.com/gpu": 4}),
        ({"pods": "40", "count/pods": "30"}, {"pods": "9"}, {"pods": 30}),
        ({"requests.ephemeral-storage": "1Ki"}, {}, {"ephemeral-storage": 1024}),
        ({"requests.hugepages-2Mi": "4Mi"}, {}, {"hugepages-2Mi": 4 << 20}),
        ({"limits.cpu": "1", "services": "3", "requests.storage": "1Gi"}, {}, {}),
        ({"count/deployments.apps": "3", "nvidia.com/gpu": "4"}, {}, {}),
        ({"gold.storageclass.storage.k8s.io/requests.storage": "1Gi"}, {}, {}),
    ],
)
def test_what_is_left(hard: dict[str, str], used: dict[str, str], left: dict[str, int]) -> None:
    assert quota(hard, used).left == left


def test_one_that_was_not_counted_yet_leaves_all() -> None:
    assert quota({"cpu": "2"}).left == {"cpu": 2000}


def test_scopes_are_kept() -> None:
    selector = {
        "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
    }
    assert quota({}, {}, scopes=["Terminating"], scopeSelector=selector).scopes == (
        Requirement(key="Terminating", operator=Operator.EXISTS),
        Requirement(key="PriorityClass", operator=Operator.IN, values=("high",)),
    )


@pytest.mark.parametrize(
    ("hard", "spec"),
    [
        ({"cpu": "much"}, {}),
        ({}, {"scopeSelector": {"matchExpressions": [{"scopeName": "x", "operator": "Near"}]}}),
    ],
)
def test_what_no_api_server_stores_is_named(hard: dict[str, str], spec: dict[str, Any]) -> None:
    with pytest.raises(Untranslatable, match="quota shop/q"):
        quota(hard, {}, **spec)
