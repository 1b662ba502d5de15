"""Every contract of the import linter refuses what it was written against."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from grimp import ImportGraph
from importlinter import configuration
from importlinter.application import use_cases
from importlinter.application.app_config import settings

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = ROOT / ".importlinter"
PACKAGES = ("federation", "estimator")
REFUSED = [
    ("federation.model", "federation.scheduler"),
    ("federation.scheduler", "federation.services"),
    ("federation.capacity", "federation.scheduler"),
    ("federation.model", "federation.capacity"),
    ("federation.capacity.packing", "federation.capacity.reserve"),
    ("federation.scheduler.division", "federation.scheduler.cycle"),
    ("federation.services.fleet", "federation.services.scheduling"),
    ("federation.services.watching", "federation.services.estimates"),
    ("federation.services", "federation.store"),
    ("federation.store", "federation.rpc"),
    ("federation.web", "federation.agents"),
    ("federation.rpc", "federation.operations"),
    ("federation.operations", "federation.web"),
    ("federation.operations", "federation.store"),
    ("federation.operations", "federation.app"),
    ("federation.codec", "federation.rpc"),
    ("federation.model", "federation.v1"),
    ("federation.model", "os"),
    ("federation.scheduler", "random"),
    ("estimator.binpack", "time"),
    ("estimator.nodes", "federation.codec"),
    ("estimator.snapshot", "logging"),
    ("federation.services", "google.protobuf"),
    ("federation.store", "federation.v1"),
    ("federation.cli", "federation.store"),
    ("federation.client", "federation.services"),
    ("federation.rpc", "estimator.binpack"),
    ("federation.operations.scoring", "estimator.kube"),
    ("federation.cli", "kubernetes"),
    ("federation.bridge.app", "federation.services"),
    ("federation.bridge.app", "estimator.scoring_config"),
    ("federation.cli", "federation.bridge.app"),
    ("estimator.kube", "federation.bridge.objects"),
    ("estimator.agent.agent", "federation.scheduler"),
    ("federation.cli.offline", "grpc"),
    ("federation.cli.offline", "federation.cli.connection"),
    ("federation.cli.workloads", "federation.scheduler"),
    ("estimator.kube", "sqlalchemy"),
    ("estimator.binpack", "estimator.cluster.cache"),
    ("estimator.servers", "estimator.kube"),
    ("estimator.kube", "estimator.binder"),
    ("estimator.binder", "estimator.servers"),
    ("estimator.binpack", "estimator.scoring_config"),
    ("estimator.estimation", "estimator.binpack"),
    ("estimator.scoring_config", "estimator.snapshot"),
    ("estimator.scoring_config", "os"),
    ("federation.services", "estimator.scoring_config"),
    ("federation.runtime.settings", "federation.app"),
    ("federation.runtime.files", "federation.runtime.settings"),
    ("federation.services", "federation.certificates, federation.store"),
    ("federation.app", "federation.demo"),
    ("federation.store", "federation.database"),
    ("federation.rpc", "federation.cli"),
    ("estimator.sources", "estimator.live"),
    ("estimator.agent", "estimator.settings"),
    ("estimator.kube", "estimator.agent"),
    ("estimator.cluster.holds", "estimator.placement.place"),
    ("estimator.cluster.holds", "estimator.cluster.cache"),
    ("estimator.credential", "estimator.agent"),
    ("federation.runtime.backoff", "estimator.nodes"),
]
ALLOWED = [
    ("federation.app", "federation.rpc, federation.store"),
    ("federation.operations.scoring", "estimator.binpack, estimator.scoring_config"),
    (
        "federation.cli.offline.score",
        "estimator.estimation, estimator.scoring_config, federation.scheduler",
    ),
    ("estimator.scoring_config", "estimator.binpack, federation.model, yaml"),
    ("estimator.binder", "estimator.cluster, estimator.binpack"),
    ("federation.cli", "federation.client, federation.codec"),
    ("federation.services", "federation.scheduler, logging"),
    ("federation.model", "math, dataclasses"),
    ("estimator.nodes", "federation.model"),
    ("estimator.agent", "federation.codec, federation.v1, estimator.sight"),
    (
        "estimator.joining",
        "estimator.credential, estimator.agent, estimator.settings",
    ),
    ("estimator.live", "estimator.kube, estimator.agent"),
    (
        "estimator.agent.agent",
        "estimator.cluster.cache, estimator.cluster.holds, estimator.placement.place",
    ),
    ("federation.bridge.app", "estimator.kube, federation.client"),
    ("federation.__main__", "federation.bridge.__main__"),
    ("federation.demo", "federation.client, federation.store, federation.certificates"),
    ("federation.database", "federation.runtime.settings, federation.store"),
]


@pytest.fixture
def house() -> ImportGraph:
    """Every room there is, and none takes anything of another."""
    graph = ImportGraph()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            graph.add_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return graph


def furnish(house: ImportGraph, room: str, imported: str) -> None:
    assert room in house.modules, room
    for name in imported.split(", "):
        package = name.partition(".")[0]
        # Of what is not ours, the linter knows the outermost package alone.
        is_ours = package in PACKAGES
        assert not is_ours or name in house.modules, name
        if not is_ours:
            house.add_module(package, is_squashed=True)
        house.add_import(importer=room, imported=name if is_ours else package)


class Built:
    """Gives the linter a graph that is there. Implements importlinter's GraphBuilder."""

    def __init__(self, graph: ImportGraph) -> None:
        self._graph = graph

    def build(self, **_: object) -> ImportGraph:
        return self._graph


def linted(house: ImportGraph, contracts: Path = CONTRACTS) -> bool:
    """What ``lint-imports`` would answer, without starting it fifty times."""
    configuration.configure()
    settings.configure(GRAPH_BUILDER=Built(house))
    return use_cases.lint_imports(str(contracts), cache_dir=None, no_logo=True)


def is_broken(house: ImportGraph, capsys: pytest.CaptureFixture[str]) -> bool:
    is_kept = linted(house)
    printed = capsys.readouterr().out
    # A linter that could not run would look like one that has found something.
    counted = re.search(r"Contracts: \d+ kept, (\d+) broken", printed)
    assert counted is not None, printed
    assert (counted[1] == "0") is is_kept, printed
    return not is_kept


@pytest.mark.parametrize(("room", "imported"), REFUSED)
def test_import_against_the_floors_is_refused(
    house: ImportGraph, capsys: pytest.CaptureFixture[str], room: str, imported: str
) -> None:
    furnish(house, room, imported)
    assert is_broken(house, capsys)


@pytest.mark.parametrize("package", PACKAGES)
def test_room_without_a_floor_is_refused(
    house: ImportGraph, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    house.add_module(f"{package}.attic")
    assert is_broken(house, capsys)


def test_imports_along_the_floors_are_allowed(
    house: ImportGraph, capsys: pytest.CaptureFixture[str]
) -> None:
    for room, imported in ALLOWED:
        furnish(house, room, imported)
    assert not is_broken(house, capsys)


@pytest.mark.parametrize(
    ("contract", "old", "new"),
    [
        (
            "rooms_without",
            "    federation.scheduler\n    estimator.est",
            "    federation.sceduler\n    estimator.est",
        ),
        ("rooms_without", "    asyncpg\n", "    asyncgp\n"),
        ("takes", "    federation.operations.scoring\n", "    federation.operations.scorign\n"),
        ("layers", "    capacity\n", "    capacty\n"),
    ],
)
def test_a_contract_of_what_does_not_exist_is_refused(
    house: ImportGraph, tmp_path: Path, contract: str, old: str, new: str
) -> None:
    written = CONTRACTS.read_text()
    assert old in written, contract
    misspelt = tmp_path / CONTRACTS.name
    misspelt.write_text(written.replace(old, new, 1))
    assert not linted(house, misspelt)
