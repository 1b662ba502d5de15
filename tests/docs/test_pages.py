"""The documentation, tried: the commands of its pages run in their order, as they are written."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from lab.pages import PAGES, ROOT, is_walked, steps_of
from tests.docs.walking import Walk

# Pages whose commands have no marks yet.
NOT_YET: frozenset[str] = frozenset()
NAMES = [
    name
    for path in PAGES
    if (name := path.relative_to(ROOT).as_posix()) not in NOT_YET
    and is_walked(path.read_text(encoding="utf-8"))
]


# The page about failover freezes it, which is logged as an error.
@pytest.mark.expected_errors("failover is frozen")
@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_a_page_run(
    name: str, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with ExitStack() as kept:
        walk = Walk(tmp_path, database_url, kept)
        for step in steps_of((ROOT / name).read_text(encoding="utf-8")):
            try:
                walk.take(step)
            except AssertionError as error:
                raise AssertionError(f"{name}, line {step.line}: {error}") from error


def test_what_is_not_walked_has_commands() -> None:
    assert {path.relative_to(ROOT).as_posix() for path in PAGES} >= NOT_YET


def test_a_mark_that_means_nothing_is_refused() -> None:
    for written in ("<!-- walk: skip -->", "<!-- walk: dance -->", "<!-- walk: prints 'a' -->"):
        with pytest.raises(ValueError, match=r"no mark of a walk|nothing comes after"):
            list(steps_of(written))
