"""On a terminal the demo tells how long each step takes, stays until Ctrl-C, and says it stops."""

from __future__ import annotations

import os
import re
import signal
import sys
import webbrowser
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

import pytest

from federation.demo import story
from federation.demo.story import run_demo
from federation.demo.telling import step
from federation.model.errors import FederationError
from federation.runtime.interruptions import Interruptions

EXAMPLES = Path(__file__).parents[3] / "examples"


class Programs:
    """Looked after so often, and then somebody presses Ctrl-C."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.is_stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started here."""

    def require_running(self) -> None:
        self.looks -= 1
        if self.looks == 0:
            signal.raise_signal(signal.SIGINT)

    def require_clean_logs(self) -> None:
        """Nothing is logged here."""

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def interruptions() -> Iterator[Interruptions]:
    found = Interruptions()
    before = signal.signal(signal.SIGINT, found.arrive)
    yield found
    signal.signal(signal.SIGINT, before)


def played(
    programs: Programs,
    interruptions: Interruptions,
    monkeypatch: pytest.MonkeyPatch,
    desktop: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run the demo with programs that start nothing."""
    monkeypatch.setattr(story, "sleep", lambda _: None)
    monkeypatch.setattr(story, "Programs", lambda *_: programs)
    environment = {"PATH": os.environ["PATH"], **desktop}
    run_demo(EXAMPLES, environment, interruptions, stay=True)


def test_it_stays_until_it_is_interrupted_and_says_so(
    interruptions: Interruptions,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(story, "_tell", lambda *_: None)
    programs = Programs(looks=5)
    played(programs, interruptions, monkeypatch)
    told = capsys.readouterr().out
    assert re.search(r"until Ctrl-C\. Look at it: http://127\.0\.0\.1:\d+/ui/\n", told)
    for name in ("FEDCTL_ENDPOINT", "FEDCTL_CA", "FEDCTL_TOKEN_FILE"):
        assert f"export {name}=" in told
    assert re.search(r"\nStopping\.\nStopped in \d+\.\d s\.\n$", told)
    assert (programs.looks, programs.is_stopped) == (0, True)


def test_in_the_middle_of_the_story_it_stops_too(
    interruptions: Interruptions,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(story, "_tell", lambda _, programs, __: programs.require_running())
    programs = Programs(looks=1)
    with pytest.raises(KeyboardInterrupt):
        played(programs, interruptions, monkeypatch)
    assert "Stopped in" in capsys.readouterr().out
    assert programs.is_stopped


def test_a_step_moves_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with step("waiting"):
        pass
    told = capsys.readouterr().out
    assert re.match(r"\r… waiting \(\d+\.\d s\)", told)
    assert re.search(r"\r✓ waiting \(\d+\.\d s\)\n$", told)
    with pytest.raises(FederationError), step("failing"):
        raise FederationError("no")
    assert capsys.readouterr().out.endswith("\n")


@pytest.mark.parametrize(
    ("environment", "opened"),
    [
        ({"DISPLAY": ":0"}, 1),
        ({"WAYLAND_DISPLAY": "wayland-0"}, 1),
        ({}, 0),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "somewhere"}, 0),
    ],
)
def test_the_page_is_opened_where_there_is_a_desktop(
    environment: dict[str, str],
    opened: int,
    interruptions: Interruptions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages: list[str] = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(webbrowser, "open", pages.append)
    monkeypatch.setattr(story, "_tell", lambda *_: None)
    played(Programs(looks=1), interruptions, monkeypatch, environment)
    assert len(pages) == opened
    assert all(page.endswith("/ui/") for page in pages)
