"""Python from protos: messages, services, and the types of both.

Must not decide where the result goes: ``update_proto`` writes it, ``verify_proto`` compares it.
"""

from __future__ import annotations

import sys
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
