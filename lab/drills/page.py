"""What docs tell operators to do when the primary is gone, done as it is written there.

Must not know more than the page does: an operator has nothing else.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from lab.pages import ROOT, steps_of
from lab.patience import PATIENCE_SECONDS

PAGE = ROOT / "docs" / "how-to" / "fail-over-postgresql.md"
OURS = ("make drills does it",)


def commands() -> list[str]:
    """Blocks of the page that are tried here, in its order."""
    steps = steps_of(PAGE.read_text(encoding="utf-8"))
    return [step.text for step in steps if step.mark("skip") == OURS]


def promote_as_written(standby_url: str, programs: Path) -> None:
    """``programs``: where PostgreSQL's are. Returns once the standby leads."""
    path = f"{programs}:{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "STANDBY": standby_url}
    answers = []
    for command in commands():
        done = subprocess.run(
            ["sh", "-e", "-c", command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        answers.append(done.stdout)
    promoted = [answer for answer in answers if answer.strip() == "t"]
    assert promoted, answers
