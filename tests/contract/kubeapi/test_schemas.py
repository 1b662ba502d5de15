"""The fake API server refuses what Karmada's definitions and Kubernetes' rules refuse."""

from __future__ import annotations

from typing import Any

import pytest

from lab.karmadas import binding, namespace
from lab.kubeapi.resources import BY_KIND, RESOURCE_BINDINGS, Document
from lab.kubeapi.state import Cluster
from lab.kubeapi.statuses import Refused
from lab.kubeapi.writing import Writer

JOBS = BY_KIND["batch/v1", "Job"]


@pytest.fixture
def writer() -> Writer:
    cluster = Cluster()
    cluster.put(namespace("default"))
    return Writer(cluster)


def refusal(writer: Writer, patch: Document, part: str) -> str:
    with pytest.raises(Refused) as refused:
        writer.patch(RESOURCE_BINDINGS, "default", "web", patch, part=part)
    assert refused.value.code == 422
    return str(refused.value)


def test_a_binding_without_required_fields_is_refused(writer: Writer) -> None:
    writer.create(RESOURCE_BINDINGS, "default", binding("web"))
    condition: Any = {"type": "FullyApplied", "status": "True", "reason": "Success"}
    told = refusal(writer, {"status": {"conditions": [condition]}}, "status")
    assert 'ResourceBinding.work.karmada.io "web" is invalid' in told
    assert "status.conditions[0].lastTransitionTime: Required value" in told
    assert "status.conditions[0].message: Required value" in told
    told = refusal(writer, {"spec": {"gracefulEvictionTasks": [{"fromCluster": "m1"}]}}, "")
    assert "spec.gracefulEvictionTasks[0].producer: Required value" in told
    told = refusal(writer, {"spec": {"rescheduleTriggeredAt": "today"}}, "")
    assert "must be of type date-time" in told
    bare = binding("bare")
    del bare["spec"]["resource"]["kind"]
    with pytest.raises(Refused, match=r"spec\.resource.kind: Required value"):
        writer.create(RESOURCE_BINDINGS, "default", bare)


def test_completions_of_a_job_are_fixed(writer: Writer) -> None:
    job: Document = {"metadata": {"name": "load"}, "spec": {"parallelism": 2, "completions": 4}}
    writer.create(JOBS, "default", job)
    writer.patch(JOBS, "default", "load", {"spec": {"parallelism": 1}})
    for completions in (5, None):
        with pytest.raises(Refused, match=r"spec\.completions: .* field is immutable") as refused:
            writer.patch(JOBS, "default", "load", {"spec": {"completions": completions}})
        assert refused.value.code == 422
