"""The order in which files of tests are begun, and the record that it comes from.

Must not run our own tests: a folder of its own has the few it takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests import durations

ROOT = Path(durations.__file__).resolve().parents[1]
CONFTEST = """
import pytest
from pathlib import Path
from tests import durations

durations.MIN_RECORDED_SECONDS = 1
RECORD = Path(__file__).with_name("record.json")

class Told:
    def pytest_runtest_logreport(self, report):
        # What the clock says is not what this is about.
        report.duration = 2.0 if "long" in report.nodeid else 0.01

def pytest_addoption(parser):
    durations.add_option(parser)

def pytest_configure(config):
    config.pluginmanager.register(durations.Recorder(RECORD))
    config.pluginmanager.register(Told())

def pytest_collection_modifyitems(items):
    durations.sort_longest_first(items, durations.read_record(RECORD))
"""


def run(folder: Path) -> list[str]:
    """Return the files of the tests that ran, in their order."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", folder],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return [line.partition("::")[0] for line in ended.stdout.splitlines() if "PASSED" in line]


def test_files_that_took_longest_are_begun_first(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "record.json").write_text('{"test_gone.py": 9, "test_other.py": 1}')
    for name in ("a", "other", "z_long"):
        text = "def test_one(): pass\ndef test_two(): pass\n"
        (tmp_path / f"test_{name}.py").write_text(text)
    assert run(tmp_path) == ["test_other.py"] * 2 + ["test_a.py"] * 2 + ["test_z_long.py"] * 2
    # Three phases of each test are reported.
    assert json.loads((tmp_path / "record.json").read_text()) == {"test_z_long.py": 12}
    assert run(tmp_path)[0] == "test_z_long.py"
