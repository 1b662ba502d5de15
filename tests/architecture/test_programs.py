"""Programs under tests that no test runs can still be imported: what they import is not moved away.

Must not run them: ``make`` does.
"""

from __future__ import annotations

import importlib
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_every_program_can_be_imported() -> None:
    programs = {each.relative_to(TESTS.parent) for each in TESTS.rglob("__main__.py")}
    assert Path("tests/replays/__main__.py") in programs
    for each in sorted(programs):
        importlib.import_module(".".join(each.with_suffix("").parts))
