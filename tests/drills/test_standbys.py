"""What the doctor and the start of a control plane say of a primary and its standby.

The role of control planes is an ordinary one, from which the server hides what others do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from federation import doctor
from federation.runtime.findings import Finding, Severity
from federation.store.condition import DatabaseCondition, condition_of, losses_of
from federation.store.engine import create_engine
from federation.store.migrate import upgrade
from lab.databases import connect, run
from lab.drills.servers import NAME, ForgetfulAddress, Pair, await_answer, execute, pair
from lab.patience import until
from lab.servers import Server, federation, started

ROLE = "app"
STATE = "SELECT sync_state FROM pg_stat_replication"
LOSSES = "decisions may be lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A primary that a standby follows; ``url`` is its database as the ordinary role."""

    pair: Pair
    url: str

    @property
    def all_seeing_url(self) -> str:
        return named(self.pair.primary_url, database=ROLE)

    @contextmanager
    def waits_for(self, names: str, state: str = "sync") -> Iterator[None]:
        self.pair.wait_for(names)
        try:
            await_answer(self.pair.primary_url, STATE, state)
            yield
        finally:
            self.pair.wait_for("")
            await_answer(self.pair.primary_url, STATE, "async")


@pytest.fixture(scope="module")
def standing() -> Iterator[Standing]:
    with (
        # A server's socket has a short path, and its data lies where root's servers have theirs.
        tempfile.TemporaryDirectory(prefix="fedsched-standby-", dir="/var/tmp") as folder,
        pair(Path(folder)) as both,
    ):
        both.follow(synchronous=False)
        execute(
            both.primary_url, f"CREATE ROLE {ROLE} LOGIN", f"CREATE DATABASE {ROLE} OWNER {ROLE}"
        )
        url = named(both.primary_url, username=ROLE, database=ROLE)
        upgrade(url)
        yield Standing(pair=both, url=url)


def named(url: str, **parts: str) -> str:
    """The same with another role or database."""
    changed: Any = make_url(url).set(**parts)
    return str(changed.render_as_string(hide_password=False))


async def condition(url: str) -> DatabaseCondition:
    engine = create_engine(url)
    try:
        return await condition_of(engine)
    finally:
        await engine.dispose()


async def losses(url: str) -> str:
    engine = create_engine(url)
    try:
        return await losses_of(engine)
    finally:
        await engine.dispose()


def found(url: str) -> Mapping[str, Finding]:
    seen = run(condition(url))
    findings = [*doctor.server_findings(seen), *doctor.durability_findings(seen)]
    return {finding.subject: finding for finding in findings}


def test_what_a_role_cannot_see_is_neither_good_nor_bad(standing: Standing) -> None:
    with standing.waits_for(NAME):
        unsure = found(standing.url)["durability"]
        assert unsure.severity is Severity.NOTE
        assert "cannot be seen by the role app" in unsure.says
        assert "GRANT pg_read_all_stats TO app" in unsure.remedy
        assert found(standing.all_seeing_url)["durability"].severity is Severity.OK
        execute(standing.pair.primary_url, f"GRANT pg_read_all_stats TO {ROLE}", "SELECT 1")
        try:
            sure = found(standing.url)["durability"]
            assert sure.severity is Severity.OK
            assert "on 2 servers" in sure.says
        finally:
            execute(standing.pair.primary_url, f"REVOKE pg_read_all_stats FROM {ROLE}", "SELECT 1")


@pytest.mark.parametrize(
    ("names", "state", "ordinary", "all_seeing"),
    [
        ("another", "async", Severity.NOTE, "0 of them"),
        (f"FIRST 2 ({NAME}, another)", "sync", Severity.BAD, "1 of them"),
    ],
)
def test_a_standby_that_is_waited_for_in_vain_is_told(
    standing: Standing, names: str, state: str, ordinary: Severity, all_seeing: str
) -> None:
    with standing.waits_for(names, state):
        assert found(standing.url)["durability"].severity is ordinary
        seen = found(standing.all_seeing_url)["durability"]
    assert seen.severity is Severity.BAD
    assert all_seeing in seen.says


def test_a_standby_that_follows_later_is_seen_by_everybody(standing: Standing) -> None:
    for url in (standing.url, standing.all_seeing_url):
        finding = found(url)["durability"]
        assert (finding.severity, "1 standbys follow later" in finding.says) == (
            Severity.NOTE,
            True,
        )


async def test_an_ordinary_role_counts_the_connections_of_others(standing: Standing) -> None:
    others = [await connect(standing.pair.primary_url) for _ in range(3)]
    try:
        # Those of tests before may be about to end.
        for url, hidden in ((standing.url, 3), (standing.all_seeing_url, 0)):
            seen = await until(partial(condition, url), of_others(3))
            assert seen.hidden_connections == hidden
    finally:
        for connection in others:
            await connection.close()


def of_others(connections: int) -> Callable[[DatabaseCondition], bool]:
    return lambda seen: seen.others_connections == connections


@pytest.mark.parametrize(
    ("value", "names", "severity"),
    [
        ("off", "", Severity.BAD),
        ("local", NAME, Severity.BAD),
        ("local", "", Severity.OK),
        ("remote_write", NAME, Severity.OK),
    ],
)
def test_settings_that_get_lost_on_the_way_are_told(
    standing: Standing, value: str, names: str, severity: Severity
) -> None:
    address = ForgetfulAddress(standing.pair.primary_sockets)
    url = named(address.url, username=ROLE, database=ROLE) + "?sslmode=disable"
    execute(
        standing.pair.primary_url,
        f"ALTER DATABASE {ROLE} SET synchronous_commit = {value}",
        "SELECT 1",
    )
    try:
        with standing.waits_for(names, "sync" if names else "async"):
            told, direct = found(url), found(standing.url)
            cost = run(losses(url))
    finally:
        execute(
            standing.pair.primary_url,
            f"ALTER DATABASE {ROLE} RESET synchronous_commit",
            "SELECT 1",
        )
        address.close()
    assert told["commits"].severity is severity
    assert f"synchronous_commit is {value}" in told["commits"].says
    assert told["connection"].severity is Severity.NOTE
    assert "statement_timeout, synchronous_commit" in told["connection"].says
    # A bad one says who set it, and is said at the start too.
    assert ("(source: database)" in told["commits"].says) == (severity is Severity.BAD)
    assert (f"synchronous_commit is {value}" in cost) == (severity is Severity.BAD)
    # Where nothing is lost, sessions have what they ask for, whatever the database's own is.
    assert (direct["commits"].severity, direct["connection"].severity) == (Severity.OK,) * 2
    assert "synchronous_commit is on" in direct["commits"].says


def test_a_role_that_may_not_read_tables_is_told(standing: Standing) -> None:
    execute(standing.pair.primary_url, "CREATE ROLE stranger LOGIN", "SELECT 1")
    url = named(standing.url, username="stranger")
    arguments = ("doctor", "--output=json", "--database-wait-seconds=0.1")
    looked = federation(*arguments, FEDERATION_DATABASE_URL=url)
    assert looked.returncode == 1
    assert "permission denied for schema fedsched" in looked.stdout
    assert "Traceback" not in looked.stderr


@contextmanager
def serving(standing: Standing, data: Path) -> Iterator[Server]:
    ports = ("--listen", "127.0.0.1:0", "--web-listen", "127.0.0.1:0")
    arguments = ("--insecure", *ports, "--data-dir", str(data))
    with started(*arguments, FEDERATION_DATABASE_URL=standing.url) as server:
        server.await_line("API")
        yield server


def test_a_start_warns_of_a_standby_that_follows_later(standing: Standing, tmp_path: Path) -> None:
    with serving(standing, tmp_path) as server:
        assert LOSSES in server.output
        assert "1 standbys follow later" in server.output


def test_a_start_says_nothing_of_a_standby_that_is_waited_for(
    standing: Standing, tmp_path: Path
) -> None:
    with standing.waits_for(NAME), serving(standing, tmp_path) as server:
        assert LOSSES not in server.output
