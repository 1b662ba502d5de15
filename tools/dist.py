"""Build sdist and wheel, each twice, and put them into dist/ where both times gave the same bytes.

The second wheel is built from the unpacked sdist, so that it is known to hold all that is needed.
Must not fetch anything: the build backend is one of the packages of .venv.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = ROOT / "dist"


class NotReproducible(Exception):
    """The same sources gave other bytes the second time."""


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write all files of an archive of our own into a folder."""
    # Releases before 3.11.4 have no filters, and take no argument for one.
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)  # noqa: S202 - of our own commits and packages


def build(kind: str, source: Path, folder: Path) -> Path:
    """The sdist or the wheel of a source tree, in a folder where nothing of the kind is yet."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (artifact,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return artifact


def write(target: Path, source: Path = ROOT) -> dict[str, str]:
    """SHA-256 by file name. Raises NotReproducible."""
    with TemporaryDirectory() as folder:
        first, second, unpacked = (Path(folder, name) for name in ("first", "second", "unpacked"))
        artifacts = [build(kind, source, first) for kind in ("sdist", "wheel")]
        build("sdist", source, second)
        with tarfile.open(artifacts[0]) as archive:
            unpack(archive, unpacked)
        (tree,) = unpacked.iterdir()
        build("wheel", tree, second)
        contents = {path.name: path.read_bytes() for path in artifacts}
        for name, content in contents.items():
            if content != (second / name).read_bytes():
                raise NotReproducible(f"{name} is another one the second time")
    target.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (target / name).write_bytes(content)
    return {name: sha256(content).hexdigest() for name, content in contents.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.dist", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=WRITTEN)
    folder: Path = parser.parse_args().folder
    try:
        sums = write(folder)
    except NotReproducible as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(error.stderr.decode(errors="replace"), file=sys.stderr)
        return 1
    for name, digest in sums.items():
        print(f"{digest}  {folder / name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
