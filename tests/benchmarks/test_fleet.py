"""The fleet that is measured is one that shipped agents report, and the same each time."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest

from federation.codec.reports import content_hash, report_from_message
from federation.model.resources import CPU
from federation.model.shapes import Echo, request_shape
from lab.fleet import (
    GPU,
    GROUP_LABEL,
    LARGE_SIZE,
    FleetPlan,
    ReportingCluster,
    dumped,
    message_of,
    objects_of,
    pod_size,
    report_of,
    stored_pools,
    varied_size,
)

PLAN = FleetPlan(nodes=200, distinct=3)


def test_a_report_says_all_that_a_shipped_agent_says() -> None:
    report = report_of(0, plan=PLAN)
    assert report.pools is not None
    assert len(report.pools.allocatables) == 2 * len(report.pools.counts)
    assert report.pools.kubernetes_minor == 36
    assert report.grade_counts
    assert report.model_hash
    assert report.summary.allocatable[GPU] > 0
    assert report.content_hash == content_hash(report)


def test_pools_are_told_apart_by_forty_label_values_and_three_taints() -> None:
    pools = report_of(0, plan=PLAN).pools
    assert pools is not None
    values = {item for pool in pools.pools for item in pool.labels.items()}
    assert len(values) == 40
    assert len({value for key, value in values if key == GROUP_LABEL}) == 28
    assert {taint.key for taint in chain(*(pool.taints for pool in pools.pools))} == {
        "spot",
        "dedicated",
        GPU,
    }


def test_the_same_plan_gives_the_same_lists_and_another_seed_gives_others() -> None:
    assert dumped(PLAN, 1) == dumped(PLAN, 1)
    assert dumped(PLAN, 1) != dumped(PLAN, 2)
    assert dumped(PLAN, 1) != dumped(FleetPlan(nodes=200, distinct=3, seed=2), 1)


def test_a_bounded_number_of_reports_serves_any_number_of_clusters() -> None:
    assert report_of(1, plan=PLAN).pools is report_of(1 + PLAN.distinct, plan=PLAN).pools
    assert report_of(1, plan=PLAN).pools != report_of(2, plan=PLAN).pools


def test_a_message_is_read_back_as_the_report_with_its_echoes() -> None:
    echo = Echo(binding="shop/web", shape=request_shape(LARGE_SIZE), bound=3)
    report = report_of(2, 7, PLAN, interest_version=4, echoes=[echo])
    read = report_from_message(message_of("member-00002", report).report)
    assert (read.sequence, read.interest_version, read.echoes) == (7, 4, (echo,))
    assert read.content_hash == content_hash(read)


def test_of_a_hundred_workloads_five_are_large_and_there_are_six_sizes() -> None:
    sizes = [pod_size(number) for number in range(100)]
    assert sizes.count(LARGE_SIZE) == 5
    assert len({request_shape(size) for size in sizes}) == 6


def test_varied_sizes_are_all_different() -> None:
    sizes = {request_shape(varied_size(number)) for number in range(500)}
    assert len(sizes) == 500


def test_a_full_cluster_has_no_room_until_a_pod_goes() -> None:
    cluster = ReportingCluster.of(dumped(FleetPlan(nodes=20, fill=1.0)))
    full = cluster.report()
    assert full.summary.allocated[CPU] == full.summary.allocatable[CPU]
    cluster.member.cache.remove_pod(next(iter(cluster.member.cache.pods())).uid)
    after = cluster.report()
    assert after.sequence == full.sequence + 1
    assert after.summary.allocated[CPU] < after.summary.allocatable[CPU]


def test_no_two_nodes_of_an_unlike_cluster_are_alike() -> None:
    plan = FleetPlan(nodes=50, is_unlike=True)
    nodes = [item for item in objects_of(plan, 0) if item["kind"] == "Node"]
    assert len({json.dumps(node["status"]["allocatable"]) for node in nodes}) == 50


def test_a_resource_of_its_own_is_reported() -> None:
    report = report_of(0, plan=FleetPlan(nodes=20, own_resource="example.com/fpga"))
    assert report.summary.allocatable["example.com/fpga"] == 20
    assert "example.com/fpga" not in report_of(0, plan=FleetPlan(nodes=20)).summary.allocatable


def test_what_a_control_plane_reckons_with_has_what_scores_need() -> None:
    assert stored_pools(0, PLAN).cells.allocatable_rk is not None


@pytest.mark.parametrize("name", ["federation", "estimator", "lab"])
def test_the_program_in_another_checkout_uses_its_public_api_alone(name: str) -> None:
    """It has to run in commits whose modules lie elsewhere."""
    source = (Path(__file__).parents[2] / "lab" / "compared_plane.py").read_text("utf-8")
    imported = [line.split()[1] for line in source.splitlines() if line.startswith("from ")]
    ours = [module for module in imported if module.split(".")[0] == name]
    assert all(module.startswith("federation.v1") for module in ours)
