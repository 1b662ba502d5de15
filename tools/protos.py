"""Python from protos: messages, services, and the types of both.

``update`` writes them, ``verify`` says whether they are as committed. ``release`` renews
proto/released.binpb once a release, and ``lint`` compares the protos with it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from google.protobuf import descriptor_pb2, duration_pb2, field_mask_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc
from protovalidate._gen.buf.validate import validate_pb

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "proto"
# Python package -> the folder of its protos; their imports name the package's path.
PACKAGES: Mapping[Path, Path] = {
    Path("federation/v1"): PROTOS / "federation" / "v1",
    Path("estimator/karmada"): PROTOS / "karmada",
}
PATTERN = "*_pb2*.py*"
RELEASED = PROTOS / "released.binpb"
API = "federation/v1"
RULES = "buf/validate/validate.proto"
RULES_PACKAGE = Path("federation/v1")
RULES_DESCRIPTORS = "rules.binpb"


def generate(target: Path) -> None:
    """Generate every package below ``target``."""
    plugins = Path(sys.executable).parent
    rules = target / RULES_DESCRIPTORS
    rules.write_bytes(rules_descriptors())
    sources = [
        package / proto.name
        for package, folder in PACKAGES.items()
        for proto in sorted(folder.glob("*.proto"))
    ]
    status = protoc.main(
        [
            "protoc",
            f"--descriptor_set_in={rules}",
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
            RULES,
        ]
    )
    if status != 0:
        raise SystemExit("the protos do not compile, see above")
    _move_rules(target)


def image(path: Path) -> None:
    """Write the descriptors of all protos, comments included, for tools that know no wheels."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / RULES_DESCRIPTORS
        rules.write_bytes(rules_descriptors())
        status = protoc.main(
            [
                "protoc",
                f"--descriptor_set_in={rules}",
                f"--proto_path={PROTOS}",
                "--include_imports",
                "--include_source_info",
                f"--descriptor_set_out={path}",
                *sorted(f"{API}/{proto.name}" for proto in (PROTOS / API).glob("*.proto")),
            ]
        )
    if status != 0:
        raise SystemExit("the protos do not compile, see above")


def rules_descriptors() -> bytes:
    """Return the descriptors of buf.validate, which the wheel of protovalidate holds.

    Options are left out: they hold the rules' meaning in CEL, which only protovalidate evaluates.
    """
    descriptors = FileDescriptorSet()
    for file in (
        *(descriptor_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR),
        *(field_mask_pb2.DESCRIPTOR, timestamp_pb2.DESCRIPTOR),
    ):
        file.CopyToProto(descriptors.file.add())
    rules = descriptors.file.add()
    rules.ParseFromString(validate_pb.desc().proto.to_binary())
    for message in rules.message_type:
        for field in (*message.field, *message.extension):
            field.ClearField("options")
    return descriptors.SerializeToString()


def _move_rules(target: Path) -> None:
    """Put the stubs of buf.validate into the package of ours that refers to them.

    Another distribution may bring a package of that name.
    """
    package = target / RULES_PACKAGE
    for stub in (target / RULES).parent.glob("validate_pb2.py*"):
        stub.rename(package / stub.name)
    for stub in package.glob(PATTERN):
        text = stub.read_text(encoding="utf-8")
        module = RULES_PACKAGE.as_posix().replace("/", ".")
        text = text.replace("from buf.validate import", f"from {module} import")
        text = text.replace("buf.validate.validate_pb2", f"{module}.validate_pb2")
        stub.write_text(text, encoding="utf-8")


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


def lint() -> int:
    """Lint the protos, and compare them with those of the last release, by buf.

    buf resolves no imports: the rules of buf.validate come out of a wheel, as descriptors.
    """
    buf = Path(sys.executable).with_name("buf")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "protos.binpb"
        image(built)
        commands: list[list[str | Path]] = [[buf, "lint", built, "--path", API]]
        if RELEASED.exists():
            released = RELEASED.relative_to(ROOT)
            commands.append([buf, "breaking", built, "--path", API, "--against", released])
        runs = [subprocess.run(command, cwd=ROOT, check=False) for command in commands]
    return max(run.returncode for run in runs)


def main(verb: str) -> int:
    if verb == "release":
        image(RELEASED)
        return 0
    if verb == "lint":
        return lint()
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        return {"update": update, "verify": verify}[verb](stubs(Path(folder)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
