"""Fixtures shared by all tests: a real PostgreSQL, a migrated template, clones of it.

Must not hide what a test is about: everything else a test needs is made in the test.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest
import pytest_asyncio
from hypothesis import settings

import federation.runtime.native_libraries  # noqa: F401 - before numpy
from federation.garbage import COLLECT_AFTER
from federation.runtime.logs import PROGRAMS
from lab import program_logs
from lab.databases import Databases
from lab.patience import PATIENCE_SECONDS
from tests import durations, examples, forked_workers

# The data is thrown away at the end: waiting for the disk would test nothing, and what is vacuumed
# is gone before anybody needs the space. Each database of a server costs turns of autovacuum.
THROWN_AWAY = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "checkpoint_timeout": "1h",
}

SERVER_VARIABLE = "FEDERATION_TEST_DATABASE_URL"

HERE = Path(__file__).parent
# Folders of tests that run whole programs, with the limits of databases that are shipped.
PROGRAMS_RUN = ("bridge", "e2e", "truth", "chaos", "attack", "docs", "drills", "replays", "skew")
# Folders in which all tests of a module share an event loop, as they share a control plane.
SHARED_LOOPS = {HERE / folder for folder in ("bridge", "unit/cli", "unit/web")}
# Folders of tests that an error in a log fails.
CHECKED_LOGS = (*PROGRAMS_RUN, "api", "agent")

serial = itertools.count(1)

# Before any test is imported: its own settings are made from those of the profile.
examples.register_profiles()


def pytest_configure(config: pytest.Config) -> None:
    """Lets signals reach the programs that tests start.

    nohup, and a shell that runs the tests in the background, have them ignore some, and programs
    would be started with that.
    """
    signal.signal(signal.SIGINT, interrupt_once)
    signal.signal(signal.SIGTERM, terminate_once)
    # Nor must the contexts of whoever runs the tests count in them.
    os.environ["FEDCTL_CONFIG"] = os.devnull + ".yaml"
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    program_logs.begin_recording()
    durations.begin_recording(config)


def interrupt_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ctrl-C ends the tests; pressed again, it must not end the ending, which has the summary."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def terminate_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """As Ctrl-C: what tests have started and made is ended and removed. Pressed again, as above;
    programs that are still started must not ignore it.
    """
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    raise KeyboardInterrupt


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    durations.add_option(parser)
    pluginmanager.register(forked_workers)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep garbage collections from looking through all that was found and imported: it stays.

    They look as seldom as those of our programs do.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SHARED_LOOPS & set(item.path.parents) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)
    durations.sort_longest_first(items, durations.read_record())
    examples.change_number(items, settings.get_current_profile_name())


def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """Names a test that fails when it does, also where each one is a letter otherwise."""
    if not report.failed or config.get_verbosity() > 0:
        return None
    if report.when == "call":
        return "failed", f"\nFAILED {report.nodeid}\n", "FAILED"
    return "error", f"\nERROR {report.nodeid}\n", "ERROR"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """One failure that cannot be shown must not end the run of all others.

    Python's parser, asked for the lines of a traceback, raises SystemError up to 3.11.7 and 3.12.1
    where another thread parses something at that moment.
    """
    try:
        return (yield)
    except Exception as error:  # noqa: BLE001 - whatever it is, the other tests go on
        failure = call.excinfo.exconly() if call.excinfo else "passed"
        longrepr = f"{failure}\n(its traceback cannot be shown: {error!r})"
        return pytest.TestReport(
            item.nodeid, item.location, dict(item.keywords), "failed", longrepr, call.when
        )


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server to make databases on: FEDERATION_TEST_DATABASE_URL, or an embedded one.

    Each worker has its own, which nobody else needs to clean up.
    """
    given = os.environ.get(SERVER_VARIABLE)
    if given:
        yield given
        return
    from federation.embedded_postgres.binaries import find_binaries
    from federation.embedded_postgres.server import EmbeddedPostgres

    bin_directory = os.environ.get("FEDERATION_POSTGRES_BIN")
    server = EmbeddedPostgres(
        find_binaries(Path(bin_directory) if bin_directory else None, os.environ.get("PATH", "")),
        tmp_path_factory.mktemp("postgres"),
        settings=THROWN_AWAY,
    )
    server.start()
    yield server.url
    server.discard()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_of_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Neither of these tests, nor of those that were killed."""
    from lab.servers import discard_databases, discard_those_of_the_dead

    ours = tmp_path_factory.getbasetemp()
    if os.environ.get(forked_workers.NUMBER_VARIABLE, "1") == "1":
        discard_those_of_the_dead(ours)
    yield
    discard_databases(ours)


@pytest.fixture(scope="module", autouse=True)
def no_unexpected_error_of_a_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail where a program that served a whole file logged an error when it ended."""
    yield
    fail_on_unexpected_errors(request)


@pytest.fixture(autouse=True)
def no_unexpected_error(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail where any program of a test logged an error that the test does not expect."""
    yield
    fail_on_unexpected_errors(request)


def fail_on_unexpected_errors(request: pytest.FixtureRequest) -> None:
    """Take what was logged in any case, so that no later test fails because of it."""
    errors = program_logs.RECORDS.take(program_logs.expected_by(request.node))
    if is_within(CHECKED_LOGS, request.path):
        program_logs.fail_on(errors)


@cache
def is_within(folders: tuple[str, ...], path: Path) -> bool:
    """Return whether a file of tests is in one of these folders."""
    return path.is_relative_to(HERE) and path.relative_to(HERE).parts[0] in folders


LIMITS = ("POOL_WAIT_SECONDS", "CONNECT_SECONDS", "COMMAND_SECONDS")
SERVER_LIMITS = ("idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout")


@pytest.fixture(scope="module", autouse=True)
def patient_databases(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let no statement, lock or connection end because this process got no turn for seconds.

    Tests of whole programs keep the limits that are shipped: some wait until one has passed. All
    others must not fail where the machine stands still for longer than that.
    """
    from federation.store import engine

    with pytest.MonkeyPatch.context() as patch:
        if not is_within(PROGRAMS_RUN, request.path):
            for name in LIMITS:
                patch.setattr(engine, name, PATIENCE_SECONDS)
            for name in SERVER_LIMITS:
                patch.setitem(engine.SERVER_SETTINGS, name, f"{PATIENCE_SECONDS:.0f}s")
        yield


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """What a program sets when it starts in a test is no other test's business."""
    root, programs = logging.getLogger(), [logging.getLogger(each) for each in PROGRAMS]
    handlers, levels = root.handlers[:], [each.level for each in (root, *programs)]
    yield
    root.handlers[:] = handlers
    for each, level in zip((root, *programs), levels, strict=True):
        each.setLevel(level)


@pytest.fixture(scope="session")
def databases(postgres_server: str) -> Iterator[Databases]:
    made = Databases(postgres_server, prefix=f"fedsched_test_{os.getpid()}")
    yield made
    # One that is embedded is removed with all that is in it.
    if os.environ.get(SERVER_VARIABLE):
        made.drop_all()
    made.close()


@pytest.fixture(scope="session")
def template_url(databases: Databases) -> str:
    """A database that the migrations made; nobody stays connected to it, it is only cloned."""
    from federation.store.migrate import upgrade

    url = databases.create("template")
    upgrade(url)
    return url


@pytest.fixture(scope="session")
def session_database_url(databases: Databases, template_url: str) -> str:
    url = databases.create("session", template=template_url)
    databases.remember(url)
    return url


@pytest.fixture
def database_url(databases: Databases, session_database_url: str) -> str:
    """A migrated database as if new: shared by the session, reset before each test."""
    databases.reset(session_database_url)
    return session_database_url


@pytest.fixture
def fresh_database_url(databases: Databases, template_url: str) -> Iterator[str]:
    """A migrated database of the test's own, for tests that alter the schema or the server."""
    url = databases.create(f"fresh{next(serial)}", template=template_url)
    yield url
    databases.drop(url)


@pytest.fixture
def empty_database_url(databases: Databases) -> Iterator[str]:
    """A database without any schema, for tests of the migrations themselves."""
    url = databases.create(f"empty{next(serial)}")
    yield url
    databases.drop(url)
