"""The committed stubs are what the protos give; `make proto` makes them so."""

from __future__ import annotations

from pathlib import Path

from tools.protos import PACKAGES, ROOT, generate, stubs


def test_committed_stubs_are_what_the_protos_give(tmp_path: Path) -> None:
    generate(tmp_path)
    assert stubs(tmp_path) == stubs(ROOT)


def test_every_proto_has_its_four_stubs() -> None:
    expected = {
        f"{package / proto.stem}_{ending}"
        for package, folder in PACKAGES.items()
        for proto in folder.glob("*.proto")
        for ending in ("pb2.py", "pb2.pyi", "pb2_grpc.py", "pb2_grpc.pyi")
    }
    assert len(expected) > 4
    # Of buf.validate, whose source is in a wheel.
    expected |= {"federation/v1/validate_pb2.py", "federation/v1/validate_pb2.pyi"}
    assert stubs(ROOT).keys() == expected
