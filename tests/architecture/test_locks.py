"""What the check of the lock files refuses."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement

from tools.locks import disagreements, pinned, required, violations

LOCK = """grpcio==1.85.1 \\
    --hash=sha256:00 \\
    --hash=sha256:01
numpy==2.4.6 ; sys_platform == 'linux' \\
    --hash=sha256:02
numpy==2.4.6 ; sys_platform == 'darwin' \\
    --hash=sha256:03
"""
REQUIREMENTS = [Requirement("grpcio>=1.85"), Requirement("NumPy>=2.2")]


def test_lock_that_has_everything_passes() -> None:
    assert list(violations("a.lock", LOCK, REQUIREMENTS)) == []


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        ("# made from ftp://example.org/lists\n" + LOCK, "names an address"),
        (LOCK.replace("grpcio", "grpcia"), "lacks grpcio"),
        (LOCK.replace("1.85.1", "1.84.0"), "pins grpcio at 1.84.0"),
        (LOCK.replace("2.4.6", "2.1.0"), "pins NumPy at 2.1.0"),
        (LOCK.replace("2.4.6", "2.5.5", 1), "pins numpy at 2.4.6, 2.5.5"),
        (LOCK.replace("    --hash=sha256:03\n", ""), "numpy has no hash"),
    ],
    ids=["address", "missing", "outdated", "outdated everywhere", "two versions", "no hash"],
)
def test_lock_that_breaks_a_rule_is_refused(lock: str, said: str) -> None:
    found = list(violations("a.lock", lock, REQUIREMENTS))
    assert any(said in violation for violation in found), found


def test_extras_of_extras_are_followed() -> None:
    project: dict[str, object] = {
        "name": "house",
        "dependencies": ["base"],
        "optional-dependencies": {"dev": ["house[server]", "tool"], "server": ["wire>=1"]},
    }
    assert {str(found) for found in required(project, ["dev"])} == {"base", "tool", "wire>=1"}


def test_locks_that_disagree_are_refused() -> None:
    other = pinned(LOCK.replace("2.4.6", "2.5.5"))
    assert list(disagreements([pinned(LOCK), pinned(LOCK)])) == []
    (found,) = disagreements([pinned(LOCK), other])
    assert "disagree about numpy" in found
