"""Files of a run: which test runs which lines, and what became of each mutant.

Must not decide anything; a run that is begun again finds here what it has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab.mutation.coverage import Lines
from lab.mutation.mutants import Mutant

KILLED, SURVIVED, TIMEOUT, UNTESTED, GONE = "killed", "survived", "timeout", "untested", "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What one run is to do; handed from the program to its pytest session as a file."""

    root: str
    folder: str
    commit: str
    packages: tuple[str, ...]
    count: int
    seed: int
    same_as: str
    results: str
    server_url: str
    template: str
    max_tests: int
    max_seconds: float
    map_end_at: float
    end_at: float
    retry: bool

    @classmethod
    def read(cls, path: Path) -> Job:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**fields, "packages": tuple(fields["packages"])})

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestLines:
    """One test that passed: how long it took, and the lines that it ran."""

    __test__ = False
    name: str
    seconds: float
    lines: Mapping[str, int]

    def runs(self, path: str, lines: Iterable[int]) -> bool:
        mask = self.lines.get(path, 0)
        return any(mask >> line & 1 for line in lines)

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


class CoverageMap:
    """A file to which a line of JSON is added for each test, and for each file of tests."""

    def __init__(self, path: Path, root: str) -> None:
        self._path = path
        self._root = Path(root)
        self.tests: list[TestLines] = []
        self.files: set[str] = set()
        self.failed: list[str] = []
        self.imported: dict[str, int] = {}

    def read(self) -> None:
        self.tests, self.files, self.failed = [], set(), []
        if not self._path.exists():
            return
        unfinished: list[dict[str, Any]] = []
        for text in self._path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(text)
            if "imported" in entry:
                self.imported = masks_of(entry["imported"])
            elif "file" in entry:
                self.files.add(entry["file"])
                self._take(unfinished)
                unfinished = []
            else:
                unfinished.append(entry)

    def _take(self, entries: Iterable[Mapping[str, Any]]) -> None:
        for entry in entries:
            if entry["outcome"] != "passed":
                if entry["outcome"] == "failed":
                    self.failed.append(entry["test"])
                continue
            self.tests.append(
                TestLines(
                    name=entry["test"], seconds=entry["seconds"], lines=masks_of(entry["lines"])
                )
            )

    def add_test(self, name: str, outcome: str, seconds: float, lines: Lines) -> None:
        self._append(
            {
                "test": name,
                "outcome": outcome,
                "seconds": round(seconds, 4),
                "lines": self._relative(lines),
            }
        )

    def end_file(self, file: str) -> None:
        self._append({"file": file})

    def set_imported(self, lines: Lines) -> None:
        relative = self._relative(lines)
        self.imported = masks_of(relative)
        self._append({"imported": relative})

    def _append(self, entry: Mapping[str, Any]) -> None:
        # One write, so that a process that is killed leaves whole lines.
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(entry).encode() + b"\n")

    def _relative(self, lines: Lines) -> dict[str, str]:
        return {
            str(Path(path).relative_to(self._root)): f"{sum(1 << line for line in numbers):x}"
            for path, numbers in lines.items()
        }


def masks_of(lines: Mapping[str, str]) -> dict[str, int]:
    return {path: int(mask, 16) for path, mask in lines.items()}


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What became of one mutant. `by` names the test that failed or did not end."""

    mutant: Mutant
    status: str
    tests: int = 0
    covering: int = 0
    seconds: float = 0.0
    by: str = ""
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class Results:
    """All verdicts of a run, in the order in which the seed chose the mutants."""

    commit: str
    seed: int
    test_files: int = 0
    sites: int = 0
    verdicts: list[Verdict] = field(default_factory=list)
    # Runs of the same tests without a fault: a failure there says that a test is not steady.
    controls: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Results:
        fields = json.loads(path.read_text(encoding="utf-8"))
        verdicts = [
            Verdict(**{**entry, "mutant": mutant_from(entry["mutant"])})
            for entry in fields["verdicts"]
        ]
        return cls(**{**fields, "verdicts": verdicts})

    def write(self, path: Path) -> None:
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        beside.replace(path)

    def with_status(self, *statuses: str) -> Sequence[Verdict]:
        return [verdict for verdict in self.verdicts if verdict.status in statuses]

    @property
    def judged(self) -> int:
        return len(self.verdicts) - len(self.with_status(GONE))

    @property
    def killed(self) -> int:
        return len(self.with_status(KILLED, TIMEOUT))

    @property
    def share_killed(self) -> float:
        return self.killed / max(1, self.judged)


def mutant_from(fields: Mapping[str, Any]) -> Mutant:
    return Mutant(**{**fields, "lines": tuple(fields["lines"])})
