"""The example in Go: generated, compiled and run, where Go and its plugins are found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.pages import ROOT
from lab.patience import PATIENCE_SECONDS
from tests.docs.fleet import Fleet

NEEDED = ("go", "protoc-gen-go", "protoc-gen-go-grpc")
# Where Debian's packages of Go libraries lie.
LIBRARIES = "/usr/share/gocode"
MODULE = "example.com/estimate"


def run(*command: str, cwd: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS * 4,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def go(tmp_path: Path) -> dict[str, str]:
    """Variables with which Go finds its libraries without asking anybody."""
    for program in NEEDED:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on the PATH")
    path = os.pathsep.join([str(tmp_path), os.environ.get("GOPATH", ""), LIBRARIES])
    variables = {**os.environ, "GO111MODULE": "off", "GOPATH": path, "HOME": str(tmp_path)}
    libraries = ["google.golang.org/grpc", "google.golang.org/protobuf/proto"]
    found = subprocess.run(
        ["go", "list", "-deps", *libraries],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode != 0:
        pytest.skip(f"Go has no grpc here: {found.stderr}")
    return variables


def test_the_example_asks_a_control_plane(
    go: dict[str, str], tmp_path: Path, database_url: str
) -> None:
    package = tmp_path / "src" / MODULE
    shutil.copytree(ROOT / "examples" / "go", package)
    buf = str(Path(sys.executable).parent / "buf")
    template = str(ROOT / "buf.gen.yaml")
    run(buf, "generate", str(ROOT), "--template", template, cwd=package, environment=go)
    run("go", "build", "-o", str(tmp_path / "estimate"), ".", cwd=package, environment=go)
    with Fleet(tmp_path, database_url) as fleet:
        fleet.join(["small1", "small2"])
        told = run(
            *(str(tmp_path / "estimate"), fleet.endpoint, "certs/ca.pem", "admin.token"),
            cwd=tmp_path,
            environment=go,
        )
    assert told == "small1 4\nsmall2 4\n"
