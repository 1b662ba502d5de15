"""The order of test files: those that took longest when it was recorded are begun first.

A long file that is begun last holds up the end of a run. `--record-durations` renews the record,
`tests/durations.json`, for the files that ran; a file that it lacks is begun last.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("durations.json")
OPTION = "--record-durations"
# Shorter files make no difference to the end of a run.
MIN_RECORDED_SECONDS = 3


def file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


def sort_longest_first(items: list[pytest.Item], seconds: Mapping[str, float]) -> None:
    """Sort by the files of tests; tests of one file keep their order."""
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0))


def read_record(record: Path = RECORD) -> dict[str, float]:
    """Return the seconds of each file, none where nothing was recorded."""
    try:
        seconds: dict[str, float] = json.loads(record.read_bytes())
    except FileNotFoundError:
        return {}
    return seconds


class Recorder:
    """A plug-in that adds up what the tests of each file take, and writes it at the end."""

    def __init__(self, record: Path = RECORD) -> None:
        self._record = record
        self._seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        root = session.config.rootpath
        seconds = read_record(self._record) | {
            file: round(total) for file, total in self._seconds.items()
        }
        lasting = {
            file: seconds[file]
            for file in sorted(seconds)
            if seconds[file] >= MIN_RECORDED_SECONDS and (root / file).exists()
        }
        self._record.write_text(json.dumps(lasting, indent=1) + "\n", encoding="utf-8")


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help=f"write {RECORD.name}: see {__name__}")


def begin_recording(config: pytest.Config) -> None:
    """Record where that is asked for."""
    if config.getoption(OPTION):
        config.pluginmanager.register(Recorder())
