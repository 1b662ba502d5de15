"""Files of a run, the mutants that are tried, and the tests that each of them has to pass.

Must not run anything; a run that is begun again finds here what it has.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from lab.mutation.mutants import Lines, Mutant, find_mutants, functions_of, outermost, shuffled

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

    @classmethod
    def read(cls, path: Path) -> Job:
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self))


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
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path) -> None:
        beside = path.with_suffix(".new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1))
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


# Of one mutant; seconds are those of the traced tests.
MAX_TESTS, MAX_SECONDS = 400, 90.0
# Tests of one file that are taken before the next files have theirs.
TESTS_AT_ONCE = 10

# A mutant as it was chosen, and as it lies in this tree; None where its code is gone.
Placed = tuple[Mutant, Mutant | None]


def mutants_to_try(job: Job, coverage: CoverageMap) -> tuple[Iterator[Placed], int]:
    """Return the mutants of a run, and how many there are to choose from."""
    root = Path(job.root)
    all_mutants = find_mutants(root, job.packages)
    # A line that ran at import made something that a later fault in it does not change.
    sites = [
        mutant
        for mutant in all_mutants
        if not coverage.imported.get(mutant.path, 0) >> mutant.line & 1
    ]
    if job.same_as:
        places = {mutant.identity: mutant for mutant in all_mutants}
        earlier = Results.read(Path(job.same_as)).verdicts[: job.count]
        again = ((each.mutant, places.get(each.mutant.identity)) for each in earlier)
        return again, len(sites)
    chosen = islice(compiling(shuffled(sites, job.seed), root), job.count)
    return ((mutant, mutant) for mutant in chosen), len(sites)


def compiling(mutants: Sequence[Mutant], root: Path) -> Iterator[Mutant]:
    """Yield those that compile, to a function that takes the same variables from outside."""
    for mutant in mutants:
        source = (root / mutant.path).read_bytes()
        try:
            right, faulty = (
                {
                    place: code.co_freevars
                    for place, code in functions_of(text, mutant.path).items()
                    if place[0] == outermost(mutant.function) and place[1] <= mutant.line
                }
                for text in (source, mutant.apply(source))
            )
        except SyntaxError:
            continue
        if right == faulty:
            yield mutant


def choose_tests(mutant: Mutant, tests: Sequence[TestLines]) -> tuple[Sequence[TestLines], int]:
    """Return tests that run the mutant's line, fast files first, and how many run it in all."""
    first, last, begin, end = mutant.lines
    covering = [test for test in tests if test.runs(mutant.path, range(first, last + 1))]
    if not covering:
        covering = [test for test in tests if test.runs(mutant.path, range(begin, end + 1))]
    by_file: dict[str, list[TestLines]] = defaultdict(list)
    for test in sorted(covering, key=lambda test: (test.seconds, test.name)):
        by_file[test.file].append(test)
    ranked = sorted(
        (rank // TESTS_AT_ONCE, test.seconds, test.name, test)
        for of_file in by_file.values()
        for rank, test in enumerate(of_file)
    )
    chosen: dict[str, TestLines] = {}
    seconds = 0.0
    for _, test_seconds, name, test in ranked:
        if len(chosen) >= MAX_TESTS or seconds + test_seconds > MAX_SECONDS:
            break
        chosen[name] = test
        seconds += test_seconds
    if ranked and not chosen:
        chosen[ranked[0][2]] = ranked[0][3]
    pace = {
        file: fmean(test.seconds for test in of_file if test.name in chosen)
        for file, of_file in by_file.items()
        if any(test.name in chosen for test in of_file)
    }
    # In a file as pytest has them, because they share fixtures.
    in_order = [test for test in tests if test.name in chosen]
    return sorted(in_order, key=lambda test: (pace[test.file], test.file)), len(covering)
