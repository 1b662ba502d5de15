"""The study itself, on small clusters: what was promised finds its nodes, and who reserves matters.

Deadlines are bounds on hanging only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from lab.kubeapi.resources import NODES
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.kubeapi.state import Cluster
from lab.patience import PATIENCE_SECONDS
from lab.truth.clusters import PROGRAMS, VARIABLE, ApiMember, programs_there
from lab.truth.plans import Answered, Line, Plan, fitted, pods_of
from lab.truth.streams import (
    CPU,
    MEMORY,
    SCHEDULINGS,
    Node,
    Stream,
    Wanted,
    free_rn,
    nodes_of,
    stream,
)
from lab.truth.study import found_by

SMALL = Plan(line=Line.STRICT, seed=1, bindings=24, nodes=(8, 9))


def test_strict_promises_find_their_nodes(tmp_path: Path) -> None:
    found = found_by(replace(SMALL, quiet_seconds=PATIENCE_SECONDS), tmp_path)
    assert found.promised > 0
    assert found.refused > 0
    assert found.pending == []
    assert found.weakened == 0


def test_estimates_alone_promise_more_than_there_is(tmp_path: Path) -> None:
    """All is asked for before any pod is made, and together it does not fit whatever happens."""
    plan = replace(SMALL, line=Line.NO_RESERVATION, burst=True, quiet_seconds=1.0)
    found = found_by(plan, tmp_path)
    assert found.promised == found.asked
    assert found.pending != []


def test_a_stream_asks_for_more_than_there_is() -> None:
    for kind in Stream:
        nodes = [*nodes_of("member1", 54, seed=3), *nodes_of("member2", 58, seed=3)]
        wanted = stream(kind, 3, 200, nodes)
        assert wanted == stream(kind, 3, 200, nodes)
        cpu, memory, _ = free_rn(nodes).sum(axis=1).tolist()
        asked = max(
            sum(each.replicas * each.request[CPU] for each in wanted) / cpu,
            sum(each.replicas * each.request[MEMORY] for each in wanted) / memory,
        )
        assert 1.2 < asked < 1.6


def test_refused_workloads_fitted_where_the_promised_pods_left_room() -> None:
    node = Node(
        name="n", labels={}, taint="", allocatable={CPU: 1000, MEMORY: 1000, "pods": 9}, running=()
    )
    first, second, third = (workload(f"w{number}", 1) for number in range(3))
    nodes = {"member1": [node]}
    answers = [Answered(wanted=first, shares={"member1": 1}), Answered(wanted=second)]
    bound = {"member1": {"w0-0": "n"}}
    assert fitted(answers, nodes, bound) == 1
    answers = [*answers[:1], Answered(wanted=third, shares={"member1": 1}), Answered(wanted=second)]
    assert fitted(answers, nodes, {"member1": {"w0-0": "n", "w2-0": "n"}}) == 0


def test_pods_are_numbered_over_all_members() -> None:
    answer = Answered(wanted=workload("w", 3), shares={"member1": 1, "member2": 2})
    assert pods_of(answer) == {"member1": ["w-0"], "member2": ["w-1", "w-2"]}


def workload(name: str, replicas: int) -> Wanted:
    request = {CPU: 500, MEMORY: 100}
    return Wanted(name=name, replicas=replicas, request=request, scheduling=SCHEDULINGS[0])


def test_a_member_is_filled_and_read_by_its_api_alone() -> None:
    """As a real API server is, on one that is not."""
    nodes = nodes_of("member1", 3, seed=1)
    with KubeApiServer(Cluster(version=10)) as server:
        member = ApiMember(server.url, ADMIN_TOKEN)
        member.fill(nodes)
        pod = workload("w", 1).pod(0, "decision", "default-scheduler")
        member.create(pod)
        on_nodes = member.nodes_of_pods()
        assert on_nodes.pop("w-0") == ""
        assert Counter(on_nodes.values()) == {node.name: len(node.running) for node in nodes}
        taints = {each["metadata"]["name"]: each["spec"] for each in server.cluster.all(NODES)}
        assert [bool(taints[node.name].get("taints")) for node in nodes] == [
            bool(node.taint) for node in nodes
        ]
        member.delete(pod)
        assert "w-0" not in member.nodes_of_pods()
        member.close()


def test_a_real_scheduler_is_used_where_all_its_programs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert programs_there() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for program in PROGRAMS:
        assert programs_there() is None
        (tmp_path / program).touch(mode=0o755)
    assert programs_there() == tmp_path
