"""The chapter about pods: members with API servers, and a propagator that applies decisions there.

Must not do what a propagation controller of somebody else could not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from federation.demo.awaiting import await_files
from federation.demo.programs import Programs

if TYPE_CHECKING:
    from federation.demo.stage import DemoStage

PROPAGATOR: Final = "propagator/propagator.py"
NEEDED: Final = (PROPAGATOR, "propagator/members.py")


def start_members(stage: DemoStage, programs: Programs, members: Sequence[str]) -> None:
    """API servers with the recorded nodes and pods."""
    recorded = (f"{name}={stage.examples / 'clusters' / f'{name}.json'}" for name in members)
    script = stage.examples / "propagator" / "members.py"
    programs.start("members", str(script), str(stage.folder), *recorded)


def await_members(stage: DemoStage, programs: Programs, members: Sequence[str]) -> None:
    await_files(programs, [kubeconfig(stage, name) for name in members])


def kubeconfig(stage: DemoStage, member: str) -> Path:
    return stage.folder / f"{member}.kubeconfig"


def start_propagator(
    stage: DemoStage, programs: Programs, members: Sequence[str], manifest: str
) -> None:
    leading = (f"--member={name}={kubeconfig(stage, name)}" for name in members)
    programs.start(
        "propagator",
        str(stage.examples / PROPAGATOR),
        f"--manifest={manifest}",
        "--round-seconds=1",
        *leading,
    )
