"""Run tests side by side: those of `make test`, or with `--rest` those that `make test-all` adds.

Must not hide a fault: with `--strict`, as in CI, one that fails has failed. On a desk it runs once
more, alone, and is named as unsteady where it passes then.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Whole programs, documentation pages, browsers, manifests, short forms of what lab/ does: `make
# test-all` alone runs these folders. All others under tests/ are for `make test`.
FOLDERS_OF_REST = (
    "tests/attack",
    "tests/benchmarks",
    "tests/browsers",
    "tests/chaos",
    "tests/docs",
    "tests/drills",
    "tests/e2e",
    "tests/fuzz",
    "tests/replays",
    "tests/skew",
    "tests/truth",
    "tests/unit/deploy",
)
# `make test` runs these of them: real programs start, place and are killed.
FILES_OF_PROGRAMS = ("tests/e2e/test_server.py",)
# `make test-all` alone runs these files of all other folders: each takes half a minute or more.
FILES_OF_REST = (
    "tests/api/test_audit_chain.py",
    "tests/api/test_failover_brake.py",
    "tests/api/test_preempting_what_runs.py",
    "tests/api/test_presences.py",
    "tests/api/test_restores.py",
    "tests/api/test_simulation_workers.py",
    "tests/bridge/test_bridging.py",
    "tests/properties/test_live_reservations.py",
    "tests/properties/test_reservations_simulated.py",
)
# Every program as a process in every mode, whatever happens to it elsewhere; streams that end in
# every way, as asyncio is another one.
PROGRAMS = (
    "test_agent.py",
    "test_demo.py::test_it_tells_its_story_and_leaves_nothing",
    "test_karmada.py",
    "test_plugins.py",
    "test_server.py",
    "test_server_outage.py",
    "test_server_start.py::test_a_lost_admin_token_is_replaced",
    "test_server_start.py::test_settings_are_shown_with_their_origin_and_without_secrets",
    "test_server_start.py::test_the_printed_command_serves_with_the_certificates_made",
    "test_several_planes.py::test_an_agent_at_one_answers_questions_asked_at_another",
    "test_several_planes.py::test_control_planes_trust_each_other_by_the_ca",
    "test_several_planes.py::test_one_that_stops_says_so_and_leaves_nothing",
)
TESTS_OF_PYTHONS = (
    *(f"tests/e2e/{name}" for name in PROGRAMS),
    "tests/agent/test_starting.py",
    "tests/api/test_bad_input.py",
    "tests/api/test_exported_fleets.py",
    "tests/api/test_stream_faults.py",
    "tests/api/test_watches.py",
    "tests/docs/test_pages.py::test_the_commands_of_a_page_run[docs/start/join-a-cluster.md]",
    "tests/docs/test_pages.py::test_the_commands_of_a_page_run[docs/how-to/call-from-python.md]",
)
# What is true on an older one and on a newer one is taken to be true between them, once the
# programs start and serve there.
TESTS_BETWEEN = (
    "tests/e2e/test_agent.py",
    "tests/e2e/test_demo.py::test_it_tells_its_story_and_leaves_nothing",
    "tests/e2e/test_server.py",
    "tests/agent/test_starting.py",
    "tests/api/test_stream_faults.py",
)
# What takes values apart by their types, and recorded answers.
TESTS_OF_NEWEST = (
    "tests/contract/store",
    "tests/unit/capacity",
    "tests/unit/cli",
    "tests/unit/codec",
    "tests/unit/scheduler",
    "tests/unit/store",
    "tests/vectors",
)
TESTS_BY_AGE: Mapping[str, Sequence[str]] = {
    "older": TESTS_OF_PYTHONS,
    "between": TESTS_BETWEEN,
    "newest": TESTS_OF_PYTHONS + TESTS_OF_NEWEST,
}
# Fewer generated examples, unless the caller has chosen; see tests/examples.py.
BRIEF_EXAMPLES = {"HYPOTHESIS_PROFILE": "brief"}
# Much of what tests do is waiting: for databases, and in the rest for processes, too.
WORKERS_PER_CORE, WORKERS_PER_CORE_OF_REST, MAX_WORKERS = 2, 3, 16
SHOWN_DURATIONS = 25
# pytest's exit code for: tests ran, and some failed.
SOME_FAILED = 1
# More failures are no accident of a busy machine, and are not tried again.
MAX_UNSTEADY = 5


def say(message: str) -> None:
    print(f"fedsched: {message}", flush=True)


def part_of_tests(*, rest: bool, root: Path = ROOT) -> list[str]:
    """Return pytest's arguments for one of both parts; each test file is in exactly one."""
    parts_of_rest = [part for part in (*FOLDERS_OF_REST, *FILES_OF_REST) if (root / part).exists()]
    programs = [file for file in FILES_OF_PROGRAMS if (root / file).exists()]
    if rest:
        return [*parts_of_rest, *(f"--ignore={file}" for file in programs)]
    folders = [
        str(folder.relative_to(root))
        for folder in sorted((root / "tests").iterdir())
        if any(folder.rglob("test_*.py"))
    ]
    tested_folders = [folder for folder in folders if folder not in parts_of_rest]
    inner = [
        part
        for part in parts_of_rest
        if any(Path(part).is_relative_to(folder) for folder in tested_folders)
    ]
    return [*programs, *tested_folders, *(f"--ignore={part}" for part in inner)]


def all_pass(
    python: str,
    tests: Sequence[str] = (),
    *,
    workers: int,
    strict: bool = False,
    folder: Path = ROOT,
    name: str = "",
    variables: Mapping[str, str] | None = None,
    show: Callable[[str], None] | None = None,
) -> bool:
    """Return whether all pass: at once if `strict`, else at the latest on their own.

    `name` tells runs at one time apart; without `show` they write where this program writes.
    """
    remembered = folder / ".pytest_cache" / f"run{name}"
    shutil.rmtree(remembered, ignore_errors=True)
    pytest = [python, "-m", "pytest", "-q", "-o", f"cache_dir={remembered}"]
    options = [f"--durations={SHOWN_DURATIONS}", "--workers", str(workers)]
    environment = {**os.environ, **(variables or {})}
    code = shown([*pytest, *options, *tests], folder, environment, show)
    failed = failed_in(remembered)
    if strict or code != SOME_FAILED or not 0 < len(failed) <= MAX_UNSTEADY:
        return code == 0
    say(f"{len(failed)} failed: once more, alone")
    if shown([*pytest, *failed], folder, environment, show):
        return False
    say("UNSTEADY: failed beside others and passed alone, a fault of the test or of ours:")
    for test in failed:
        say(f"  {test}")
    return True


def failed_in(remembered: Path) -> list[str]:
    """Return the tests that failed in the last run, by pytest's own notes."""
    try:
        return sorted(json.loads((remembered / "v/cache/lastfailed").read_bytes()))
    except FileNotFoundError:
        return []


def shown(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    show: Callable[[str], None] | None,
) -> int:
    taken, joined = (subprocess.PIPE, subprocess.STDOUT) if show else (None, None)
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=taken,
        stderr=joined,
        text=True,
        errors="replace",
    ) as process:
        try:
            if show and process.stdout:
                for line in process.stdout:
                    show(line)
            return process.wait()
        except KeyboardInterrupt:
            # It has been interrupted, too, and still says what failed until then.
            process.wait()
            raise


def default_workers(*, rest: bool = False) -> int:
    """Return how many tests run at once on this machine."""
    per_core = WORKERS_PER_CORE_OF_REST if rest else WORKERS_PER_CORE
    return min(MAX_WORKERS, per_core * (os.cpu_count() or 1))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="run_tests")
    parser.add_argument("tests", nargs="*", help="these alone, and not all of one part")
    parser.add_argument("--rest", action="store_true", help="the part that `make test` leaves out")
    parser.add_argument("--of-python", choices=TESTS_BY_AGE, help="those for another Python")
    parser.add_argument("--strict", action="store_true", help="no second try for what fails")
    parser.add_argument(
        "--workers", type=int, metavar="COUNT", help="by default some for each core"
    )
    chosen, options = parser.parse_known_args(arguments)
    started, part = time.monotonic(), part_of_tests(rest=chosen.rest)
    is_good = all_pass(
        sys.executable,
        [*(chosen.tests or TESTS_BY_AGE.get(chosen.of_python) or part), *options],
        workers=chosen.workers or default_workers(rest=chosen.rest),
        strict=chosen.strict,
        variables={} if chosen.rest or chosen.of_python else {**BRIEF_EXAMPLES, **os.environ},
    )
    name = "the rest of the tests" if chosen.rest else "tests"
    say(f"{name}: {'ok' if is_good else 'FAILED'} in {time.monotonic() - started:.0f} s")
    return 0 if is_good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
