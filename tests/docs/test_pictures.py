"""The drawings in the documentation are what the product draws today; photographs are not held."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from tests.docs.pictures import DECISIONS, FOLDER, STORM, drawn, stormed


def test_pictures_are_as_they_would_be_drawn() -> None:
    made = drawn()
    assert made.keys() == {each.name for each in FOLDER.glob("*.svg")}
    for name, content in made.items():
        message = f"run `python -m tests.docs.pictures`: {name} is drawn otherwise now"
        assert (FOLDER / name).read_text("utf-8") == content, message
        assert f"(pictures/{name})" in "".join(
            page.read_text("utf-8") for page in FOLDER.parent.glob("*.md")
        )


def test_the_storm_in_examples_is_the_one_that_is_made(tmp_path: Path) -> None:
    replays = []
    for file in (STORM, stormed(tmp_path / "storm.trace")):
        asked = ["replay", "--trace", str(file), "--workers", "1", "-o", "json"]
        answer = CliRunner().invoke(fedctl, asked)
        assert answer.exit_code == 0, answer.output
        replays.append(json.loads(answer.stdout))
    assert replays[0] == replays[1], "run `python -m tests.docs.pictures`"
    assert replays[0]["equal"] == DECISIONS
