"""Whether what was decided is decided again alike, from an exported trace, as people replay one.

Must not look into the database.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from lab.patience import PATIENCE_SECONDS


class Replayed(NamedTuple):
    """How many decisions came out equal, and which did not."""

    equal: int
    violations: list[str]


def replay(folder: Path, endpoint: str, token: str) -> Replayed:
    """All decisions that a control plane has."""
    trace, token_file = folder / "chaos.trace", folder / "chaos.token"
    token_file.write_text(token, "ascii")
    asked = [
        *("--insecure", "--endpoint", endpoint, "--token-file", str(token_file)),
        *("--timeout", f"{PATIENCE_SECONDS:g}", "trace", "export", str(trace)),
    ]
    exported = CliRunner().invoke(fedctl, asked)
    if exported.exit_code:
        return Replayed(0, [f"no trace could be exported: {exported.output}"])
    answer = CliRunner().invoke(
        fedctl, ["replay", "--trace", str(trace), "--workers", "1", "-o", "json"]
    )
    try:
        told: dict[str, Any] = json.loads(answer.stdout)
    except ValueError:
        return Replayed(0, [f"the trace could not be replayed: {answer.output}"])
    wrong = [each for each in told["unequal"] if each["how"] not in ("notKept", "forgotten")]
    return Replayed(told["equal"], [f"replayed otherwise: {each}" for each in wrong])
