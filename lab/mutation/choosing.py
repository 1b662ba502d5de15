"""The mutants that are tried, and the tests that each of them has to pass.

Must not run anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean

from lab.mutation.mutants import Mutant, find_mutants, shuffled
from lab.mutation.patching import functions_of, outermost
from lab.mutation.records import CoverageMap, Job, Results, TestLines

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


def choose_tests(
    mutant: Mutant, tests: Sequence[TestLines], job: Job
) -> tuple[Sequence[TestLines], int]:
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
        if len(chosen) >= job.max_tests or seconds + test_seconds > job.max_seconds:
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
