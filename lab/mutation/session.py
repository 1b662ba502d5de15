"""A pytest session that collects all tests once, and runs a few of them for each mutant.

Must not run a test in its own process: each run is a fork, which a fault may leave in any state.

The program (`lab/mutation/__main__.py`) loads this module as a plugin of pytest.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.mutation.mutants import LineTracer, Mutant, NotPatched, patch
from lab.mutation.records import (
    GONE,
    KILLED,
    SURVIVED,
    TIMEOUT,
    UNTESTED,
    CoverageMap,
    Job,
    Results,
    Verdict,
    choose_tests,
    mutants_to_try,
)

JOB_VARIABLE = "FEDSCHED_MUTATION_JOB"
# A test that takes so long, and so many times as long as it took before, does not end.
SECONDS_TO_END, TIMES_TO_END = 20.0, 10.0
# The same for a whole file of tests while the map is made.
FILE_SECONDS = 300.0
CONTROL_EVERY = 25
FAILED, NOT_PATCHED = 1, 3
# Begins the line in which a run says why a test failed; all other lines are names of tests.
REASON = "\0"


@dataclass(slots=True)
class Run:
    """How a forked run of tests ended. `last` is the test that it was in."""

    status: str = SURVIVED
    last: str = ""
    reason: str = ""


class Outcomes:
    """A plugin of pytest that notes how the test that runs now ends."""

    def __init__(self) -> None:
        self.outcome = "skipped"
        self.on_failure: Callable[[str], None] = lambda _: None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.outcome = "failed"
            self.on_failure(" ".join(report.longreprtext.split())[-300:])
        elif report.when == "call" and report.passed and self.outcome != "failed":
            self.outcome = "passed"


class Engine:
    """Makes the map of tests and lines, and then tries one mutant after the other."""

    def __init__(self, session: pytest.Session, job: Job, tracer: LineTracer) -> None:
        self._session = session
        self._job = job
        self._tracer = tracer
        self._root = Path(job.root)
        self._map = CoverageMap(map_file(job), job.root)
        self._items = {item.nodeid: item for item in session.items}
        self._outcomes = Outcomes()
        session.config.pluginmanager.register(self._outcomes)
        # Modified times that no other version of a file has had: bytecode is kept by them.
        self._modified = int(time.time())
        self._runs = 0

    def run(self) -> None:
        self._map.read()
        if not self._map.imported:
            self._map.set_imported(self._tracer.take())
        self._tracer.take()
        by_file: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in self._session.items:
            by_file[item.nodeid.partition("::")[0]].append(item)
        for file in sorted(by_file):
            if file not in self._map.files:
                self._map_file(file, by_file[file])
        self._map.read()
        say(f"map: {len(self._map.tests)} tests, not passed: {self._map.failed}")
        self._try_mutants()

    def _map_file(self, file: str, items: Sequence[pytest.Item]) -> None:
        """Run the tests of one file under the tracer, in a process of its own."""
        begin = time.monotonic()

        def traced() -> None:
            self._tracer.start()
            for item, following in zip(items, [*items[1:], None], strict=True):
                self._outcomes.outcome = "skipped"
                started = time.monotonic()
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                seconds = time.monotonic() - started
                lines = self._tracer.take()
                self._map.add_test(item.nodeid, self._outcomes.outcome, seconds, lines)

        run = self._forked(traced, lambda _: FILE_SECONDS)
        self._map.end_file(file)
        say(f"{file}: {len(items)} tests, {run.status}, {time.monotonic() - begin:.1f} s")

    def _try_mutants(self) -> None:
        path = Path(self._job.results)
        results = Results(commit=self._job.commit, seed=self._job.seed)
        if path.exists():
            results = Results.read(path)
        mutants, results.sites = mutants_to_try(self._job, self._map)
        results.test_files = len(self._map.files)
        for number, (mutant, placed) in enumerate(mutants):
            if number < len(results.verdicts):
                continue
            verdict = self._judge(mutant, placed, results)
            results.verdicts[number : number + 1] = [verdict]
            results.write(path)
            say(
                f"{number + 1:4} {verdict.status:9} {mutant.path}:{mutant.line} "
                f"{mutant.operator}  {verdict.seconds:.1f} s  {verdict.tests} tests  {verdict.by}"
            )
        results.write(path)

    def _judge(self, mutant: Mutant, placed: Mutant | None, results: Results) -> Verdict:
        """Try one mutant; `placed` is the same one as it lies in this tree."""
        if placed is None:
            return Verdict(mutant=mutant, status=GONE)
        chosen, covering = choose_tests(placed, self._map.tests)
        if not chosen:
            return Verdict(mutant=mutant, status=UNTESTED)
        names = [test.name for test in chosen]
        limits = {test.name: SECONDS_TO_END + TIMES_TO_END * test.seconds for test in chosen}
        begin = time.monotonic()
        with self._faulty_file(placed) as source:
            run = self._tested(names, limits, lambda: self._patch(placed, source))
        seconds = time.monotonic() - begin
        self._runs += 1
        if self._runs % CONTROL_EVERY == 1:
            control = self._tested(names, limits, lambda: None)
            results.controls.append(f"{control.status} {control.last}".strip())
        return Verdict(
            mutant=mutant,
            status=run.status,
            tests=len(chosen),
            covering=covering,
            seconds=round(seconds, 2),
            by=run.last if run.status != SURVIVED else "",
            reason=run.reason,
        )

    def _patch(self, mutant: Mutant, source: bytes) -> None:
        try:
            patch(source, str(self._root / mutant.path), mutant.function, mutant.line)
        except NotPatched as error:
            say(f"not patched: {error}")
            os._exit(NOT_PATCHED)

    def _faulty_file(self, mutant: Mutant) -> FaultyFile:
        self._modified += 2
        return FaultyFile(self._root / mutant.path, mutant, self._modified)

    def _tested(
        self, names: Sequence[str], limits: dict[str, float], prepare: Callable[[], None]
    ) -> Run:
        """Run tests in a fork until one fails."""
        items = [self._items[name] for name in names]

        def until_failure() -> None:
            prepare()
            self._outcomes.on_failure = fail
            for item, following in zip(items, [*items[1:], None], strict=True):
                tell(item.nodeid)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

        tell_to: list[int] = []

        def fail(reason: str) -> None:
            tell(f"{REASON}{reason}")
            os._exit(FAILED)

        def tell(name: str) -> None:
            os.write(tell_to[0], f"{name}\n".encode(errors="replace"))

        return self._forked(until_failure, lambda name: limits.get(name, 60.0), tell_to)

    def _forked(
        self,
        work: Callable[[], None],
        limit: Callable[[str], float],
        tell_to: list[int] | None = None,
    ) -> Run:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os.setpgid(0, 0)
            if tell_to is not None:
                tell_to.append(writing)
            self._work_and_exit(work)
        os.close(writing)
        try:
            return watched(pid, reading, limit)
        finally:
            end_group(pid)
            os.close(reading)
            self._forget_databases(pid)

    def _work_and_exit(self, work: Callable[[], None]) -> None:
        code = 2
        try:
            self._clone_for_migrations()
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - whatever a fault does, the fork ends here
            say(traceback.format_exc())
        finally:
            os._exit(code)

    def _clone_for_migrations(self) -> None:
        """Let the template of a run be a clone: migrations take longer than most tests."""
        from federation.store import migrate
        from lab.databases import connect, run

        migrated = migrate.upgrade

        def clone(url: str) -> None:
            name = url.partition("?")[0].rpartition("/")[2]
            if not name.endswith("_template"):
                migrated(url)
                return

            async def cloned() -> None:
                server = await connect(self._job.server_url)
                await server.execute(f'DROP DATABASE "{name}"')
                await server.execute(f'CREATE DATABASE "{name}" TEMPLATE "{self._job.template}"')
                await server.close()

            run(cloned())

        migrate.upgrade = clone

    def _forget_databases(self, pid: int) -> None:
        from lab.databases import connect, run

        async def forget() -> None:
            server = await connect(self._job.server_url)
            names = await server.fetch(
                "SELECT datname FROM pg_database WHERE datname LIKE $1",
                rf"fedsched\_test\_{pid}\_%",
            )
            for (name,) in names:
                await server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            await server.close()

        run(forget())


class FaultyFile:
    """A source file with a fault in it, for programs that tests start; put right at the end."""

    def __init__(self, path: Path, mutant: Mutant, modified: int) -> None:
        self._path = path
        self._right = path.read_bytes()
        self._faulty = mutant.apply(self._right)
        self._modified = modified

    def __enter__(self) -> bytes:
        self._write(self._faulty, self._modified)
        return self._faulty

    def __exit__(self, *_: object) -> None:
        self._write(self._right, self._modified + 1)

    def _write(self, source: bytes, modified: int) -> None:
        self._path.write_bytes(source)
        os.utime(self._path, (modified, modified))


def watched(pid: int, reading: int, limit: Callable[[str], float]) -> Run:
    """Wait for a forked run; end it when one of its tests takes too long."""
    run = Run()
    begin, waited, rest = time.monotonic(), waiting_seconds(pid), b""
    is_open = True
    while is_open:
        is_ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if select.select([reading], [], [], 0.0 if is_ended else 1.0)[0]:
            data = os.read(reading, 65536)
            is_open = bool(data)
            *lines, rest = (rest + data).split(b"\n")
            if lines and take_lines(lines, run):
                begin, waited = time.monotonic(), waiting_seconds(pid)
        elif is_ended:
            # A process that it left holds the pipe open.
            break
        own_seconds = time.monotonic() - begin - max(0.0, waiting_seconds(pid) - waited)
        if not is_ended and own_seconds > limit(run.last):
            run.status = TIMEOUT
            os.killpg(pid, signal.SIGKILL)
            break
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if run.status != TIMEOUT and code != 0:
        run.status = GONE if code == NOT_PATCHED else KILLED
    return run


def take_lines(lines: Sequence[bytes], run: Run) -> bool:
    """Note what a forked run says; return whether it has begun another test."""
    texts = [line.decode(errors="replace") for line in lines]
    names = [text for text in texts if not text.startswith(REASON)]
    run.reason = next((text[1:] for text in texts if text.startswith(REASON)), run.reason)
    run.last = names[-1] if names else run.last
    return bool(names)


def end_group(pid: int) -> None:
    """End what a run has started and left."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def waiting_seconds(pid: int) -> float:
    """Return for how long threads of a process could have run and got no processor."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text(encoding="ascii").split()[1])
        except (OSError, IndexError, ValueError):
            continue
    return total / 1e9


def say(text: str) -> None:
    os.write(LOG, f"{text}\n".encode())


def map_file(job: Job) -> Path:
    return Path(job.folder) / "map.jsonl"


def source_paths(job: Job) -> Iterator[str]:
    for package in job.packages:
        for path in (Path(job.root) / package).rglob("*.py"):
            yield str(path)


# pytest takes what is printed: this goes where the program's output goes.
LOG = os.dup(2)
JOB = Job.read(Path(os.environ[JOB_VARIABLE]))
TRACER = LineTracer(source_paths(JOB))
if not map_file(JOB).exists():
    # What runs at import is known from then on.
    TRACER.start()


def pytest_collection_finish() -> None:
    TRACER.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    if session.testsfailed:
        say(f"{session.testsfailed} files of tests cannot be collected")
        sys.exit(2)
    Engine(session, JOB, TRACER).run()
    return True
