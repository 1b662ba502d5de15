"""Run what Python's version may change on every other Python that this machine has.

The names python3.11, python3.12, … are looked for on PATH and among pyenv's versions. Each gets an
environment of its own beside .venv, made of the same lock; their tests run side by side.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tools import run_tests
from tools.progress import say

ROOT = Path(__file__).resolve().parent.parent
LOWEST, TRIED = (3, 11), 20
# Of all Pythons together: much of what tests do is waiting for processes.
WORKERS, MIN_WORKERS = 6, 2
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
TESTS = (
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
ASKED = """
import sys
released = sys.version_info.releaselevel == "final" and sys.implementation.name == "cpython"
print(*sys.version_info[:2]) if released else sys.exit(1)
"""

Version = tuple[int, ...]


def candidates() -> Iterator[Path]:
    folders = [Path(entry) for entry in os.get_exec_path()]
    roots = [os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"]
    for root in (Path(root) for root in roots if root):
        folders += sorted(root.glob("versions/*/bin"), reverse=True)
    for minor in range(LOWEST[1], TRIED):
        for folder in folders:
            if os.access(python := folder / f"python3.{minor}", os.X_OK):
                yield python


def version_of(python: Path) -> Version | None:
    """Return None for a Python that does not run, or that is no release of CPython."""
    try:
        answer = subprocess.run(
            [python, "-c", ASKED], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tuple(map(int, answer.stdout.split())) if answer.returncode == 0 else None


def other_pythons() -> dict[Version, Path]:
    """One of each version, without ours."""
    pythons: dict[Version, Path] = {}
    for python in candidates():
        version = version_of(python)
        if version and version >= LOWEST and version != sys.version_info[:2]:
            pythons.setdefault(version, python)
    return pythons


def installed(version: Version, python: Path) -> Path | None:
    """The Python of its environment, None where that could not be made."""
    folder = ROOT / f".venv-{named(version)}"
    say(f"Python {named(version)}: {python}")
    install = [str(python), "-m", "tools.install", "dev", "--into", str(folder)]
    if subprocess.run(install, cwd=ROOT, check=False).returncode == 0:
        return folder / "bin" / "python"
    return None


def passes(
    version: Version, python: Path, tests: Sequence[str], workers: int, *, strict: bool
) -> bool:
    """Several run at once: which one a line is of stands in front of it."""
    started = time.monotonic()
    is_good = run_tests.all_pass(
        str(python),
        tests,
        workers=workers,
        strict=strict,
        name=f"-{named(version)}",
        show=lambda line: print(f"{named(version)}  {line}", end="", flush=True),
    )
    seconds = time.monotonic() - started
    say(f"Python {named(version)}: {'ok' if is_good else 'FAILED'} in {seconds:.0f} s")
    return is_good


def tests_of(version: Version, other_versions: Collection[Version]) -> Sequence[str]:
    """The tests that a Python runs beside ours and these."""
    if version == max(other_versions):
        return TESTS + TESTS_OF_NEWEST
    return TESTS if version < sys.version_info[:2] else TESTS_BETWEEN


def named(version: Version) -> str:
    return ".".join(map(str, version))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="other_pythons")
    parser.add_argument("--strict", action="store_true", help="no second try for what fails")
    strict = parser.parse_args(arguments).strict
    pythons = other_pythons()
    if not pythons:
        say("this machine has no other Python from 3.11 on")
        return 0
    # One after the other: two would wait for each other.
    environments = {version: installed(version, python) for version, python in pythons.items()}
    installed_pythons = {version: python for version, python in environments.items() if python}
    workers = max(MIN_WORKERS, WORKERS // len(pythons))
    tests = [tests_of(version, pythons) for version in installed_pythons]
    # All of them, also after one fails: who repairs wants the whole list.
    with ThreadPoolExecutor(max_workers=len(pythons)) as threads:
        run = partial(passes, workers=workers, strict=strict)
        results = list(threads.map(run, installed_pythons, installed_pythons.values(), tests))
    return 0 if len(installed_pythons) == len(pythons) and all(results) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
