"""Studies in memory: the same numbers each time, and bursts of careful promises.

No processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from estimator.estimation.pooling import Pooling
from estimator.kube.dump import read_dump
from estimator.snapshot import NodeTable, Snapshot, columns_of
from federation.capacity.careful import refined_available_c
from federation.capacity.cluster_room import ReportId
from federation.model.arrays import IntArray
from federation.model.placement import Certificate
from federation.model.reasons import Reason
from lab.simulator import ControlPlane
from lab.simulator_cluster import Snapshot as Report
from lab.truth.kube_scheduler import KubeScheduler, Timeline
from lab.truth.plans import Line, Plan
from lab.truth.streams import POOL_LABEL, Node, Stream, documents_of, nodes_of, stream
from lab.truth.virtual import VirtualStudy, found_in_memory

MEMBER = "member1"


# With 9, a pod was left where nothing was kept back for what is on its way.
@pytest.mark.parametrize("seed", [8, 9])
def test_the_pods_of_a_burst_find_their_nodes(seed: int) -> None:
    nodes = nodes_of(MEMBER, 54, seed)
    control = ControlPlane((MEMBER,))
    control.accept(MEMBER, report_of(nodes))
    wanted = stream(Stream.PLAIN, seed, 100, nodes)
    promised = [each for each in wanted if control.submit(each.binding(Certificate.CAREFUL))]
    assert promised != wanted
    scheduler = scheduler_of(nodes, seed)
    for each in promised:
        for number in range(each.replicas):
            scheduler.put_pod(each.pod(number, "decision", "default-scheduler"))
    scheduler.timeline.run(60.0)
    assert scheduler.pending == []


def report_of(nodes: list[Node]) -> Report:
    """As the member's agent reports it, before any pod is there that was decided here."""
    dump = read_dump(as_list(nodes))
    table = NodeTable.of(dump.nodes)
    running = {node.name: node.running for node in nodes}
    requested = [
        {
            **{name: sum(pod[name] for pod in running[node.name]) for name in ("cpu", "memory")},
            "pods": len(running[node.name]),
        }
        for node in table.nodes
    ]
    snapshot = Snapshot(table=table, requested=columns_of(requested))
    pools = Pooling(256).pools(snapshot, np.ones(len(table), dtype=np.bool_))
    return Report(report=ReportId(1, 1), interest_version=0, pools=pools, echoes=())


def scheduler_of(nodes: list[Node], seed: int) -> KubeScheduler:
    scheduler = KubeScheduler(
        nodes=read_dump(as_list(nodes)).nodes,
        timeline=Timeline(),
        bind=lambda *_: None,
        random=np.random.default_rng(seed),
    )
    for document in documents_of(nodes):
        if document["kind"] == "Pod":
            scheduler.put_pod(document)
    return scheduler


def as_list(nodes: list[Node]) -> bytes:
    items = [each for each in documents_of(nodes) if each["kind"] == "Node"]
    return msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": items})


SMALL = Plan(line=Line.CAREFUL, seed=1, bindings=60, nodes=(14, 15))


def test_a_study_comes_out_alike_each_time() -> None:
    assert found_in_memory(SMALL) == found_in_memory(SMALL)


def test_members_tell_nodes_apart_by_labels_once_a_request_named_them() -> None:
    study = VirtualStudy(replace(SMALL, stream=Stream.HARD))
    study.run()
    first, *later = (answer for answer in study.answered if POOL_LABEL in answer.wanted.labels)
    assert not first.shares
    assert any(answer.shares for answer in later)


@pytest.mark.parametrize("seed", [1, 2])
def test_pods_of_second_looks_find_their_nodes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    granted = list[int]()

    def counted(*arguments: Any) -> tuple[IntArray, Mapping[int, Reason]]:
        found_c, reasons = refined_available_c(*arguments)
        granted.append(int(found_c.sum()))
        return found_c, reasons

    monkeypatch.setattr("federation.scheduler.promisable.refined_available_c", counted)
    found = found_in_memory(replace(SMALL, seed=seed))
    assert any(granted)
    assert found.promised > 0
    assert found.pending == []
