"""A short run of a bridge that is killed, as are its control plane and Karmada's API server."""

from __future__ import annotations

from pathlib import Path

from lab.chaos.bridged import BridgePlan, disturb


def test_whatever_is_killed_the_end_is_as_if_nothing_had_been(
    database_url: str, tmp_path: Path
) -> None:
    result = disturb(tmp_path, database_url, BridgePlan(bindings=40, kills=3, seed=2))
    assert result.violations == []
    # It would prove nothing if nothing had happened.
    assert [result.counts[f"{kind} killed"] for kind in ("api", "bridge", "plane")] == [1, 1, 1]
    assert result.counts["placed at the end"] == 36
