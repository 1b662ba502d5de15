"""Reports that the agent's own code makes, kept and replayed: real pools, grades and echoes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest_asyncio

from federation.history.kept_reports import packed_picture, unpacked_picture
from federation.model.grades import DEFAULT_MODEL
from federation.v1.scheduling_pb2 import BesideReports
from lab.control_planes import Plane, running_control_plane
from lab.services import make_report
from tests.api.calls import binding, scheduled
from tests.keepers import Keeper
from tests.recorded_agents import DUMPS, RECORDED, recorded_agents
from tests.unit.cli.calling import run

REPORTS = DUMPS.parent / "reports"
SCRIPTS = {f"graded{number}": REPORTS / f"doc-models-{number}.json" for number in (1, 2, 3)}


@pytest_asyncio.fixture(loop_scope="module")
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[Plane]:
    """Three clusters with agents, and no duty that keeps reports beside the test."""
    async with (
        running_control_plane(database_url, tmp_path, keep_reports_hours="0") as api,
        recorded_agents(api, tmp_path),
    ):
        yield api


async def beside(running: Plane, decision_id: str) -> BesideReports:
    answer = await running.admin.ask("ReplayDecision", id=decision_id, from_reports=True)
    assert answer.equal, answer
    reports: BesideReports = answer.beside_reports
    return reports


async def test_reports_with_grades_are_kept_and_replayed(running: Plane) -> None:
    keep = Keeper(running.plane)
    fleet = running.plane.parts.fleet.snapshot
    reports = [state.report for state in fleet.states]
    assert all(report is not None and report.grade_counts for report in reports), reports
    assert await keep() == len(RECORDED)
    for number, replicas in enumerate((4, 3)):
        decision = (await scheduled(running, binding(f"web-{number}", replicas=replicas))).decision
        assert decision.clusters, decision
        kept = await beside(running, decision.id)
        assert (kept.equal, kept.clusters, kept.decisions_since) == (True, 3, number), kept
        assert list(kept.differences) == []
        assert [(target.name, target.replicas) for target in kept.targets] == [
            (target.name, target.replicas) for target in decision.clusters
        ]
        answer = await run(running, "replay", decision.id, "--from-reports")
        assert answer.exit_code == 0, answer.output
        assert "say the same" in answer.stdout


async def test_reports_of_grades_alone_are_kept_and_replayed(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(
            database_url, tmp_path, keep_reports_hours="0", allow_unproven="true"
        ) as running,
        recorded_agents(running, tmp_path, tuple(SCRIPTS), SCRIPTS),
    ):
        assert await Keeper(running.plane)() == len(SCRIPTS)
        decision = (await scheduled(running, binding("web", replicas=5))).decision
        assert decision.clusters, decision
        kept = await beside(running, decision.id)
        assert (kept.equal, kept.clusters, list(kept.differences)) == (True, 3, []), kept
        answer = await run(running, "replay", decision.id, "--from-reports")
        assert (answer.exit_code, "say the same" in answer.stdout) == (0, True), answer.output


def test_the_order_of_grades_does_not_change_a_pictures_name() -> None:
    counts = {8: 1, 0: 4, 3: 2}
    report = replace(make_report(3), grade_counts=counts, model_hash="m", echoes=())
    turned = replace(report, grade_counts=dict(sorted(counts.items())))
    (name, body), (same_name, _) = (
        packed_picture(one, None, DEFAULT_MODEL, (), follows_claims=False)
        for one in (report, turned)
    )
    assert name == same_name
    picture = unpacked_picture(body)
    assert picture.report is not None
    assert picture.report.grade_counts == counts
