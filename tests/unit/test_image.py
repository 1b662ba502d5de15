"""The Dockerfile: pinned by an argument, and given every file that it copies."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()


def test_one_argument_says_what_all_stages_are_built_on() -> None:
    assert re.findall(r"^ARG (\w+)=", DOCKERFILE, re.MULTILINE) == ["PYTHON_IMAGE"]
    stages = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert stages == ["${PYTHON_IMAGE}"] * 2
    # An argument of all stages stands before the first.
    assert DOCKERFILE.index("ARG PYTHON_IMAGE") < DOCKERFILE.index("FROM ")


def test_what_is_copied_is_there_and_not_ignored() -> None:
    lines = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    copied = {name for line in lines for name in line.split()}
    assert {"federation", "estimator", "migrations"} <= copied
    assert IGNORED[0] == "*"
    assert {name.removeprefix("!") for name in IGNORED if name.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)
