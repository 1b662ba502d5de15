"""Wheels of fedsched, built and laid out as an installer would, without any index.

Must not know which release it builds.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile

from packaging.requirements import Requirement


def built_wheel(source: Path, folder: Path) -> Path:
    """The wheel of a source tree, made in a folder."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(build, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (made,) = folder.glob("*.whl")
    return made


def needed(wanted: Distribution, extras: set[str]) -> Iterator[Distribution]:
    """What an installer would bring with it, as it is installed here."""
    for requirement in map(Requirement, wanted.requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            found = distribution(requirement.name)
            yield found
            yield from needed(found, {"", *requirement.extras})


def installed(wheel: Path, extras: set[str], folder: Path) -> Path:
    """A folder of the wheel's files and of links to those packages that the extras name."""
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    (info,) = (entry for entry in ZipPath(wheel).iterdir() if entry.name.endswith(".dist-info"))
    for package in needed(PathDistribution(info), {"", *extras}):
        for file in package.files or ():
            top = file.parts[0]
            if top not in {"..", "__pycache__"} and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(package.locate_file(top))))
    return folder
