"""Migrations through a real pgbouncer that gives each transaction another server process."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from federation.store.migrate import pending
from lab.patience import PATIENCE_SECONDS, until
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
pool_mode = transaction
default_pool_size = 3
ignore_startup_parameters = extra_float_digits
pidfile = {directory}/pid
logfile = {directory}/log
"""


@pytest.fixture
def pooled_url(empty_database_url: str) -> Iterator[str]:
    """The same database, by a pooler of transactions."""
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
        pooled = url.update_query_dict({"host": str(directory), "port": SOCKET_PORT})
        yield pooled.render_as_string(hide_password=False)
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
