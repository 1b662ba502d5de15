"""How many generated examples each profile tries.

Must not run our own tests: a folder of its own has the few it takes.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import examples

CONFTEST = """
from hypothesis import settings
from tests import examples

examples.register_profiles()

def pytest_collection_modifyitems(items):
    examples.change_number(items, settings.get_current_profile_name())
"""
TESTS = """
import pytest
from hypothesis import given, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, rule

TRIED = []

@given(strategies.integers())
@settings(max_examples=20)
def test_function(number):
    TRIED.append(number)

class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        TRIED.append(self)
    @rule()
    def step(self):
        pass

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=20)

@pytest.fixture(autouse=True)
def counted():
    TRIED.clear()
    yield
    print(f"tried {len(TRIED)}")
"""


@pytest.mark.parametrize(
    ("profile", "tried"), [("", 20), (examples.BRIEF, 7), (examples.EXPLORE, 500)]
)
def test_a_profile_scales_what_a_test_says(tmp_path: Path, profile: str, tried: int) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_generated.py").write_text(TESTS)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", tmp_path],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(Path(examples.__file__).resolve().parents[1]),
            "HYPOTHESIS_PROFILE": profile,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    numbers = [int(number) for number in re.findall(r"tried (\d+)", ended.stdout)]
    # Hypothesis was seen to try one more on a machine that stood still meanwhile.
    assert [number - tried in (0, 1) for number in numbers] == [True, True], ended.stdout
