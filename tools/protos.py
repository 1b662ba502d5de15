"""Python from protos: messages, services, and the types of both.

``update`` writes them, ``verify`` says whether they are as committed. ``release`` renews
proto/released.binpb, which ``make check`` compares the protos with: once a release.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "proto"
# Python package -> the folder of its protos; their imports name the package's path.
PACKAGES: Mapping[Path, Path] = {
    Path("federation/v1"): PROTOS / "federation" / "v1",
    Path("estimator/karmada"): PROTOS / "karmada",
}
PATTERN = "*_pb2*.py*"
RELEASED = PROTOS / "released.binpb"


def generate(target: Path) -> None:
    """Generate every package below ``target``."""
    plugins = Path(sys.executable).parent
    sources = [
        package / proto.name
        for package, folder in PACKAGES.items()
        for proto in sorted(folder.glob("*.proto"))
    ]
    status = protoc.main(
        [
            "protoc",
            *(f"--proto_path={package}={folder}" for package, folder in PACKAGES.items()),
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--proto_path={googleapis()}",
            f"--plugin=protoc-gen-mypy={plugins / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={plugins / 'protoc-gen-mypy_grpc'}",
            f"--python_out={target}",
            f"--grpc_python_out={target}",
            f"--mypy_out=quiet:{target}",
            f"--mypy_grpc_out=quiet:{target}",
            *map(str, sources),
        ]
    )
    if status != 0:
        raise SystemExit("the protos do not compile, see above")


def googleapis() -> Path:
    """The folder from which ``google/rpc/*.proto`` is imported: a wheel that ships the sources."""
    spec = find_spec("google.rpc")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("googleapis-common-protos is not installed: run `make install`")
    return Path(next(iter(spec.submodule_search_locations))).parent.parent


def stubs(root: Path) -> dict[str, str]:
    """The generated files below ``root``, by path."""
    paths = (path for package in PACKAGES for path in (root / package).glob(PATTERN))
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths}


def update(fresh: Mapping[str, str]) -> int:
    for name in stubs(ROOT).keys() - fresh.keys():
        (ROOT / name).unlink()
    for name, content in fresh.items():
        (ROOT / name).write_text(content, encoding="utf-8")
    print(f"{len(fresh)} files in {', '.join(map(str, PACKAGES))}")
    return 0


def verify(fresh: Mapping[str, str]) -> int:
    committed = stubs(ROOT)
    differing = [name for name in {**fresh, **committed} if fresh.get(name) != committed.get(name)]
    for name in sorted(differing):
        print(f"{name} is not what the protos give: run `make proto`")
    return 1 if differing else 0


def main(verb: str) -> int:
    if verb == "release":
        buf = Path(sys.executable).with_name("buf")
        command = [str(buf), "build", "-o", str(RELEASED.relative_to(ROOT))]
        return subprocess.run(command, cwd=ROOT, check=False).returncode
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        return {"update": update, "verify": verify}[verb](stubs(Path(folder)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
