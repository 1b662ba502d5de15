"""A real pgbouncer: migrations work through one of transactions, control planes refuse it."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from federation.store.migrate import is_pooled, pending, upgrade
from lab.patience import PATIENCE_SECONDS, until
from tests.e2e.test_server_start import PORTS, federation
from tests.migration.test_schema import MIGRATE, upgrade_at_once

PGBOUNCER = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
SOCKET_PORT = "6432"
CONFIGURATION = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr =
listen_port = {listen_port}
unix_socket_dir = {directory}
auth_type = any
pool_mode = {pool_mode}
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
pidfile = {directory}/pid
logfile = {directory}/log
"""


@pytest.fixture
def pooled_url(empty_database_url: str) -> Iterator[str]:
    """The same database, by a pooler of transactions."""
    with pooled(empty_database_url, "transaction") as url:
        yield url


@contextmanager
def pooled(empty_database_url: str, pool_mode: str) -> Iterator[str]:
    url = make_url(empty_database_url)
    host = str(url.query.get("host", ""))
    if PGBOUNCER is None or not host.startswith("/"):
        pytest.skip("needs pgbouncer (Debian: apt-get install pgbouncer) and a server on a socket")
    owner = pwd.getpwuid(Path(host).stat().st_uid).pw_name
    directory = Path(tempfile.mkdtemp(prefix="fedsched-pgbouncer-"))
    directory.chmod(0o777)
    configuration = directory / "pgbouncer.ini"
    configuration.write_text(
        CONFIGURATION.format(
            host=host,
            port=url.query["port"],
            user=url.username,
            listen_port=SOCKET_PORT,
            directory=directory,
            pool_mode=pool_mode,
        )
    )
    # It does not run as root.
    as_owner = ["-u", owner] if os.getuid() == 0 else []
    pooler = subprocess.Popen([PGBOUNCER, "-q", *as_owner, str(configuration)])

    async def is_listening() -> bool:
        assert pooler.poll() is None
        return (directory / f".s.PGSQL.{SOCKET_PORT}").exists()

    try:
        asyncio.run(until(is_listening, bool))
        pooling = url.update_query_dict({"host": str(directory), "port": SOCKET_PORT})
        yield pooling.render_as_string(hide_password=False)
    finally:
        pooler.terminate()
        pooler.wait(PATIENCE_SECONDS)
        shutil.rmtree(directory)


def test_several_programs_migrate_through_a_transaction_pooler(
    pooled_url: str, empty_database_url: str
) -> None:
    upgrade_at_once(pooled_url)
    assert pending(empty_database_url) == []
    # Who comes next finds no lock that a session of the pooler still holds.
    again = [sys.executable, "-c", MIGRATE, empty_database_url]
    assert subprocess.run(again, timeout=PATIENCE_SECONDS, check=False).returncode == 0


def test_a_control_plane_refuses_a_transaction_pooler_and_says_what_to_do(
    pooled_url: str, empty_database_url: str, tmp_path: Path
) -> None:
    upgrade(empty_database_url)
    url = {"FEDERATION_DATABASE_URL": pooled_url}
    refused = federation("serve", "--insecure", *PORTS, "--data-dir", str(tmp_path), **url)
    assert refused.returncode == 1
    (line,) = [line for line in refused.stderr.splitlines() if "pooler" in line]
    assert "another server process" in line
    assert "pool_mode = session" in line
    assert "Traceback" not in refused.stderr
    doctor = federation("doctor", "--data-dir", str(tmp_path), **url)
    assert doctor.returncode == 1
    assert "pool_mode = session" in doctor.stdout


def test_sessions_of_their_own_are_no_pooler(empty_database_url: str) -> None:
    assert not is_pooled(empty_database_url)
    with pooled(empty_database_url, "session") as url:
        assert not is_pooled(url)
