"""Wheel and sdist are the same whenever they are built, and hold what they have to."""

from __future__ import annotations

import shutil
import tarfile
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pytest

from tools import dist
from tools.dist import NotReproducible, build, write

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "sample"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["sample"]
"""


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """The sources of a small distribution."""
    source = tmp_path / "sample"
    (source / "sample").mkdir(parents=True)
    (source / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (source / "sample" / "__init__.py").touch()
    return source


def test_ours_are_built_twice_and_are_whole(tmp_path: Path) -> None:
    sums = write(tmp_path)
    assert {path.name: sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()} == sums
    (wheel,) = tmp_path.glob("*.whl")
    names = set(ZipFile(wheel).namelist())
    packages = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert packages == {"federation", "estimator"}
    # Else type checkers take nothing of a package for typed.
    assert {f"{package}/py.typed" for package in packages} <= names
    assert any(name.startswith("federation/store/migrations/versions/") for name in names)
    (sources,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sources) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "docs"} <= tops
    assert not {".git", ".venv", "dist", "certs"} & tops


def test_what_differs_the_second_time_is_not_kept(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changing(kind: str, source: Path, folder: Path) -> Path:
        with (source / "sample" / "__init__.py").open("a", encoding="utf-8") as file:
            file.write("# once more\n")
        return build(kind, source, folder)

    kept = tmp_path / "dist"
    assert len(write(kept, sample)) == 2
    shutil.rmtree(kept)
    monkeypatch.setattr(dist, "build", changing)
    with pytest.raises(NotReproducible, match="sample-1"):
        write(kept, sample)
    assert not kept.exists()
