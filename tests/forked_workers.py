"""A plugin of pytest that runs tests in `--workers` processes, forked when all are collected.

Must not start a thread: a fork of a process with threads may stand still.

Each worker runs one file of tests after the other, in the order in which they were collected.
Only this process reports. A worker that dies fails the test that it was in, and another one goes on
with the rest of the file.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

import pytest

# The number of the worker that this process is.
NUMBER_VARIABLE = "FEDSCHED_TEST_WORKER"
INTERRUPTIONS = {signal.SIGINT, signal.SIGTERM}
# A message of a worker to this process: its kind, and the name of a test or a report.
Kind = Literal["free", "report", "end"]


@dataclass(slots=True, kw_only=True)
class Worker:
    """A worker as this process sees it: `tests` are those of its file that have not ended."""

    process: int
    connection: Connection
    tests: deque[int] = field(default_factory=deque)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="processes that run tests; 0: this one")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("--workers")
    if not count or session.config.option.collectonly or session.testsfailed or not session.items:
        return None
    if threading.active_count() > 1:
        raise pytest.UsageError(f"what tests import has started threads: {threading.enumerate()}")
    ForkedRun(session, count).run()
    return True


class ForkedRun:
    """All workers of a run, and what none of them has begun."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        # There is no public way to it outside of a test.
        factory: pytest.TempPathFactory = vars(session.config)["_tmp_path_factory"]
        self._folder = factory.getbasetemp()
        by_file: dict[str, list[int]] = defaultdict(list)
        for index, item in enumerate(session.items):
            by_file[item.nodeid.partition("::")[0]].append(index)
        self._files = deque(by_file.values())
        self._count = min(count, len(by_file))
        self._forked = 0
        self._workers: dict[Connection, Worker] = {}

    def run(self) -> None:
        """Run all tests, or those until the first that `-x` and its like do not allow."""
        try:
            for _ in range(self._count):
                self._fork(())
            while self._workers:
                ready = wait([*self._workers])
                for worker in [*self._workers.values()]:
                    if worker.connection in ready:
                        self._hear(worker)
        finally:
            for worker in self._workers.values():
                with suppress(ProcessLookupError):
                    os.kill(worker.process, signal.SIGINT)
                # One that missed the signal, as a finalizer does, ends when it says something.
                worker.connection.close()
            for worker in self._workers.values():
                os.waitpid(worker.process, 0)

    def _fork(self, tests: Sequence[int]) -> None:
        """Start a worker; tests of a file that was begun are handed out first."""
        if tests:
            self._files.appendleft(list(tests))
        ours, connection_of_worker = Pipe()
        self._forked += 1
        # An interruption must not run the end of this process in the new one.
        signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
        process = os.fork()
        if process == 0:
            for connection in (ours, *self._workers):
                connection.close()
            end_as_worker(self._session, connection_of_worker, self._forked, str(self._folder))
        connection_of_worker.close()
        self._workers[ours] = Worker(process=process, connection=ours)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTIONS)

    def _hear(self, worker: Worker) -> None:
        """Take one message of a worker, or its end."""
        hook = self._session.config.hook
        try:
            kind, content = worker.connection.recv()
        except (EOFError, ConnectionError):
            self._take_end(worker)
            return
        if kind == "free":
            worker.tests.extend(self._files.popleft() if self._files else ())
            worker.connection.send(list(worker.tests))
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=self._session.config, data=content)
            hook.pytest_runtest_logreport(report=report)
        else:
            item = self._session.items[worker.tests.popleft()]
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
            self._stop_where_asked()

    def _take_end(self, worker: Worker) -> None:
        """Note that a worker has ended; where it had tests left, it died."""
        del self._workers[worker.connection]
        worker.connection.close()
        _, status = os.waitpid(worker.process, 0)
        code = os.waitstatus_to_exitcode(status)
        if not worker.tests:
            if code:
                raise RuntimeError(f"a worker has ended with {code} after its last test")
            return
        item = self._session.items[worker.tests.popleft()]
        message = f"its worker has ended with {code}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", message, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        self._stop_where_asked()
        if self._files or worker.tests:
            self._fork(worker.tests)

    def _stop_where_asked(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)


class Reporter:
    """A plugin that tells the first process how the tests of a worker go."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._send("report", data)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._send("end", nodeid)

    def _send(self, kind: Kind, content: object) -> None:
        self._connection.send((kind, content))


def end_as_worker(
    session: pytest.Session, connection: Connection, number: int, folder: str
) -> None:
    """Run tests as a worker until there are no more, and leave this process."""
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTIONS)
        become_worker(session, connection, number, folder)
        try:
            run_files(session, connection)
        finally:
            # Ends what tests of a whole session share.
            plugin(session, "runner").pytest_sessionfinish(session)
        code = 0
    except (EOFError, ConnectionError, KeyboardInterrupt):
        # The first process has ended, or wants an end.
        code = 0
    except BaseException:  # noqa: BLE001 - it is said here, and the exit code says it again
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code)


def become_worker(
    session: pytest.Session, connection: Connection, number: int, folder: str
) -> None:
    """Take this process out of what it shares with the one that it was forked from."""
    config = session.config
    os.environ[NUMBER_VARIABLE] = str(number)
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(Reporter(config, connection))
    # A folder and files of captured output of its own.
    config.option.basetemp = f"{folder}/worker{number}"
    plugin(session, "tmpdir").pytest_configure(config)
    capturing = plugin(session, "capturemanager")
    capturing.stop_global_capturing()
    capturing.start_global_capturing()
    capturing.suspend_global_capture()


def run_files(session: pytest.Session, connection: Connection) -> None:
    while tests := ask_for_file(connection):
        run_tests(session, [session.items[index] for index in tests])


def ask_for_file(connection: Connection) -> list[int]:
    connection.send(("free", ""))
    tests: list[int] = connection.recv()
    return tests


def run_tests(session: pytest.Session, items: Iterable[pytest.Item]) -> None:
    """Run the tests of one file; after the last one only what the session shares stays."""
    ahead: deque[pytest.Item | pytest.Session] = deque([*items, session])
    while len(ahead) > 1:
        item = ahead.popleft()
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=ahead[0])


def plugin(session: pytest.Session, name: str) -> Any:
    """Return a plugin of pytest itself, whose hooks have names and no types."""
    return session.config.pluginmanager.get_plugin(name)
