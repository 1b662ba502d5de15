"""The pictures in docs/pictures, drawn by what draws them for people, and the storm that some show.

    python -m tests.docs.pictures

``test_pictures`` says when that is to be done. Must not draw anything itself.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.cli.plans import picture
from federation.plans.plan import PlanLimits
from federation.services.plans.leaving import move_out
from federation.services.scheduling.attempt import Attempt, AttemptCause
from federation.services.scheduling.stated_moves import PlannedMove
from federation.v1 import rebalance_pb2
from federation.v1.resource_pb2 import TargetCluster
from lab.benchmarks.bench_plans import NOW, bindings, fleet_of
from lab.traces import storm_trace

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
STORM = ROOT / "examples" / "storm.trace"
CLUSTERS, LEAVE, BINDINGS = 10, 2, 60
DECISIONS, STORM_CLUSTERS, ROOM = 300, 8, 150


def drawn() -> Mapping[str, str]:
    """Every picture by its file's name."""
    return {"drain.svg": asyncio.run(_drain()), **_what_if()}


async def _drain() -> str:
    names = [f"member{number}" for number in range(CLUSTERS)]
    leave, stay = names[:LEAVE], names[LEAVE:]
    move = PlannedMove(why=dict.fromkeys(leave, "is to be emptied"))
    attempts = [
        Attempt(binding=each, cause=AttemptCause.MOVED, stated=move)
        for each in bindings(BINDINGS, leave, stay)
    ]
    moves = move_out(fleet_of(names, leave), attempts, NOW, PlanLimits())
    plan = rebalance_pb2.Plan(kind=rebalance_pb2.PLAN_KIND_DRAIN)
    for each in moves.steps:
        step = plan.steps.add()
        step.before.extend(
            TargetCluster(name=target.name, replicas=target.replicas) for target in each.before
        )
        step.after.extend(
            TargetCluster(name=target.name, replicas=target.replicas) for target in each.after
        )
    return picture(plan)


def stormed(path: Path) -> Path:
    """The storm as a trace file, which is the same every time."""
    return storm_trace(path, DECISIONS, STORM_CLUSTERS, ROOM)


def _what_if() -> Mapping[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        asked = ["what-if", str(STORM), "--cordon", "member003", "--svg", folder]
        answer = CliRunner().invoke(fedctl, [*asked, "--workers", "1"])
        assert answer.exit_code == 0, answer.output
        return {
            f"what-if-{name}.svg": Path(folder, f"{name}.svg").read_text("utf-8")
            for name in ("replicas", "waited")
        }


if __name__ == "__main__":
    stormed(STORM)
    for file, content in drawn().items():
        (FOLDER / file).write_text(content, encoding="utf-8")
