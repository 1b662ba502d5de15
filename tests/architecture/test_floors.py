"""Every contract of the import linter refuses what it was written against."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {
    "federation": (
        "__main__ agents app certificates cli.offline client codec database demo files logs model "
        "plugins rpc.scoring scheduler services settings store v1 web"
    ),
    "estimator": (
        "__main__ agent app backoff binder binpack cache cases change claims credential "
        "estimation extender health incoming joining judgement karmada kube lease live nodes "
        "placing quotas reports rpc scoring_config scoring_settings settings snapshot sources "
        "unschedulable"
    ),
}
REFUSED = [
    ("federation.model", "import federation.scheduler"),
    ("federation.scheduler", "import federation.services"),
    ("federation.services", "import federation.store"),
    ("federation.store", "import federation.rpc"),
    ("federation.web", "import federation.agents"),
    ("federation.rpc", "import federation.app"),
    ("federation.codec", "import federation.rpc"),
    ("federation.model", "import federation.v1"),
    ("federation.model", "import os"),
    ("federation.scheduler", "import random"),
    ("estimator.binpack", "import time"),
    ("estimator.nodes", "import federation.codec"),
    ("estimator.snapshot", "import logging"),
    ("federation.services", "import google.protobuf"),
    ("federation.store", "import federation.v1"),
    ("federation.cli", "import federation.store"),
    ("federation.client", "import federation.services"),
    ("federation.rpc", "import estimator.binpack"),
    ("federation.rpc.scoring", "import estimator.kube"),
    ("federation.cli", "import kubernetes"),
    ("estimator.agent", "import federation.scheduler"),
    ("estimator.kube", "import sqlalchemy"),
    ("estimator.binpack", "import estimator.cache"),
    ("estimator.extender", "import estimator.kube"),
    ("estimator.binder", "import estimator.kube"),
    ("estimator.binder", "import estimator.extender"),
    ("estimator.binpack", "import estimator.scoring_config"),
    ("estimator.estimation", "import estimator.binpack"),
    ("estimator.scoring_config", "import estimator.snapshot"),
    ("estimator.scoring_config", "import os"),
    ("federation.services", "import estimator.scoring_config"),
    ("federation.settings", "import federation.app"),
    ("federation.files", "import federation.settings"),
    ("federation.services", "import federation.certificates, federation.store"),
    ("federation.app", "import federation.demo"),
    ("federation.store", "import federation.database"),
    ("federation.rpc", "import federation.cli"),
    ("estimator.sources", "import estimator.live"),
    ("estimator.rpc", "import estimator.settings"),
    ("estimator.kube", "import estimator.rpc"),
    ("estimator.agent", "import estimator.rpc"),
    ("estimator.claims", "import estimator.placing"),
    ("estimator.claims", "import estimator.cache"),
    ("estimator.credential", "import estimator.rpc"),
    ("estimator.backoff", "import estimator.nodes"),
]
ALLOWED = [
    ("federation.app", "import federation.rpc, federation.store"),
    ("federation.rpc.scoring", "import estimator.binpack, estimator.scoring_config"),
    (
        "federation.cli.offline",
        "import estimator.estimation, estimator.scoring_config, federation.scheduler",
    ),
    ("estimator.scoring_config", "import estimator.binpack, federation.model, yaml"),
    ("estimator.binder", "import estimator.agent, estimator.binpack"),
    ("federation.cli", "import federation.client, federation.codec"),
    ("federation.services", "import federation.scheduler, logging"),
    ("federation.model", "import math, dataclasses"),
    ("estimator.nodes", "import federation.model"),
    ("estimator.rpc", "import federation.codec, federation.v1, estimator.agent"),
    ("estimator.joining", "import estimator.credential, estimator.rpc, estimator.settings"),
    ("estimator.live", "import estimator.kube, estimator.rpc"),
    ("estimator.agent", "import estimator.cache, estimator.claims, estimator.placing"),
    ("federation.demo", "import federation.client, federation.store, federation.certificates"),
    ("federation.database", "import federation.settings, federation.store"),
]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A house with every room there will be, all of them empty."""
    shutil.copy(ROOT / ".importlinter", tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "import_contracts.py", tmp_path / "tools")
    for package, rooms in ROOMS.items():
        for room in rooms.split():
            folder = tmp_path.joinpath(package, *room.split("."))
            folder.mkdir(parents=True)
    for package in ROOMS:
        for folder in (tmp_path / package, *(tmp_path / package).rglob("*")):
            (folder / "__init__.py").touch()
    return tmp_path


def furnish(house: Path, room: str, statement: str) -> None:
    house.joinpath(*room.split("."), "__init__.py").write_text(f"{statement}\n")


def broken_contracts(house: Path) -> list[str]:
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=house,
        env={"PATH": "", "PYTHONPATH": str(house), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    broken = [line for line in result.stdout.splitlines() if line.endswith(" BROKEN")]
    # A linter that could not run would look like one that has found something.
    assert "Contracts:" in result.stdout, result
    assert (result.returncode != 0) == bool(broken), result
    return broken


@pytest.mark.parametrize(("room", "statement"), REFUSED)
def test_import_against_the_floors_is_refused(house: Path, room: str, statement: str) -> None:
    furnish(house, room, statement)
    assert broken_contracts(house)


@pytest.mark.parametrize("package", ROOMS)
def test_room_without_a_floor_is_refused(house: Path, package: str) -> None:
    (house / package / "attic.py").touch()
    assert broken_contracts(house)


def test_imports_along_the_floors_are_allowed(house: Path) -> None:
    for room, statement in ALLOWED:
        furnish(house, room, statement)
    assert broken_contracts(house) == []
