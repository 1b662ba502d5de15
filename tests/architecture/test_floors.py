"""Every contract of the import linter refuses what it was written against."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("federation", "estimator")
REFUSED = [
    ("federation.model", "import federation.scheduler"),
    ("federation.scheduler", "import federation.services"),
    ("federation.capacity", "import federation.scheduler"),
    ("federation.model", "import federation.capacity"),
    ("federation.capacity.packing", "import federation.capacity.reserve"),
    ("federation.scheduler.division", "import federation.scheduler.cycle"),
    ("federation.services.fleet", "import federation.services.scheduling"),
    ("federation.services.watching", "import federation.services.estimates"),
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
    ("estimator.binpack", "import estimator.cluster.cache"),
    ("estimator.extender", "import estimator.kube"),
    ("estimator.binder", "import estimator.kube"),
    ("estimator.binder", "import estimator.extender"),
    ("estimator.binpack", "import estimator.scoring_config"),
    ("estimator.estimation", "import estimator.binpack"),
    ("estimator.scoring_config", "import estimator.snapshot"),
    ("estimator.scoring_config", "import os"),
    ("federation.services", "import estimator.scoring_config"),
    ("federation.runtime.settings", "import federation.app"),
    ("federation.runtime.files", "import federation.runtime.settings"),
    ("federation.services", "import federation.certificates, federation.store"),
    ("federation.app", "import federation.demo"),
    ("federation.store", "import federation.database"),
    ("federation.rpc", "import federation.cli"),
    ("estimator.sources", "import estimator.live"),
    ("estimator.control_plane", "import estimator.settings"),
    ("estimator.kube", "import estimator.control_plane"),
    ("estimator.agent", "import estimator.control_plane"),
    ("estimator.cluster.claims", "import estimator.placing.place"),
    ("estimator.cluster.claims", "import estimator.cluster.cache"),
    ("estimator.credential", "import estimator.control_plane"),
    ("federation.runtime.backoff", "import estimator.nodes"),
]
ALLOWED = [
    ("federation.app", "import federation.rpc, federation.store"),
    ("federation.rpc.scoring", "import estimator.binpack, estimator.scoring_config"),
    (
        "federation.cli.score",
        "import estimator.estimation, estimator.scoring_config, federation.scheduler",
    ),
    ("estimator.scoring_config", "import estimator.binpack, federation.model, yaml"),
    ("estimator.binder", "import estimator.agent, estimator.binpack"),
    ("federation.cli", "import federation.client, federation.codec"),
    ("federation.services", "import federation.scheduler, logging"),
    ("federation.model", "import math, dataclasses"),
    ("estimator.nodes", "import federation.model"),
    ("estimator.control_plane", "import federation.codec, federation.v1, estimator.agent"),
    (
        "estimator.joining",
        "import estimator.credential, estimator.control_plane, estimator.settings",
    ),
    ("estimator.live", "import estimator.kube, estimator.control_plane"),
    (
        "estimator.agent",
        "import estimator.cluster.cache, estimator.cluster.claims, estimator.placing.place",
    ),
    ("federation.demo", "import federation.client, federation.store, federation.certificates"),
    ("federation.database", "import federation.runtime.settings, federation.store"),
]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A house with every room there is, all of them empty."""
    shutil.copy(ROOT / ".importlinter", tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "import_contracts.py", tmp_path / "tools")
    for package in PACKAGES:
        for module in (ROOT / package).rglob("*.py"):
            empty = tmp_path / module.relative_to(ROOT)
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
    return tmp_path


def furnish(house: Path, room: str, statement: str) -> None:
    place = house.joinpath(*room.split("."))
    module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    assert module.exists(), room
    module.write_text(f"{statement}\n")


def linted(house: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=house,
        env={"PATH": "", "PYTHONPATH": str(house), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def broken_contracts(house: Path) -> list[str]:
    result = linted(house)
    broken = [line for line in result.stdout.splitlines() if line.endswith(" BROKEN")]
    # A linter that could not run would look like one that has found something.
    assert "Contracts:" in result.stdout, result
    assert (result.returncode != 0) == bool(broken), result
    return broken


@pytest.mark.parametrize(("room", "statement"), REFUSED)
def test_import_against_the_floors_is_refused(house: Path, room: str, statement: str) -> None:
    furnish(house, room, statement)
    assert broken_contracts(house)


@pytest.mark.parametrize("package", PACKAGES)
def test_room_without_a_floor_is_refused(house: Path, package: str) -> None:
    (house / package / "attic.py").touch()
    assert broken_contracts(house)


def test_imports_along_the_floors_are_allowed(house: Path) -> None:
    for room, statement in ALLOWED:
        furnish(house, room, statement)
    assert broken_contracts(house) == []


@pytest.mark.parametrize(
    ("contract", "old", "new"),
    [
        (
            "rooms_without",
            "    federation.scheduler\n    estimator.est",
            "    federation.sceduler\n    estimator.est",
        ),
        ("rooms_without", "    asyncpg\n", "    asyncgp\n"),
        ("takes", "    federation.rpc.scoring\n", "    federation.rpc.scorign\n"),
        ("layers", "    capacity\n", "    capacty\n"),
    ],
)
def test_a_contract_of_what_does_not_exist_is_refused(
    house: Path, contract: str, old: str, new: str
) -> None:
    contracts = house / ".importlinter"
    written = contracts.read_text()
    assert old in written, contract
    contracts.write_text(written.replace(old, new, 1))
    assert linted(house).returncode != 0
