"""What ``federation doctor`` says of conditions, good and bad, and of a real database."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import make_url

from federation import doctor
from federation.certificates import make_certificates
from federation.embedded_postgres.binaries import find_binaries
from federation.embedded_postgres.running import running_url
from federation.embedded_postgres.server import EmbeddedPostgres
from federation.runtime.findings import WIDTH, Finding, Severity
from federation.runtime.settings import Settings, load_settings
from federation.services.journal_ports import OpenTransaction
from federation.store.condition import DatabaseCondition
from federation.store.migrate import upgrade
from lab.servers import START_SECONDS, federation

ROOT = Path(__file__).resolve().parents[2]
# "**PostgreSQL of your own**, 15 or newer"; in one sentence.
WANTED_VERSION = re.compile(r"PostgreSQL\b[^.\n]*?(\d+) or newer")

SOUND = DatabaseCondition(
    version=180001,
    version_text="18.1",
    is_standby=False,
    has_fsync=True,
    has_full_page_writes=True,
    synchronous_standbys="ANY 1 (a, b)",
    synchronous_commit="on",
    commit_source="client",
    lost_settings=[],
    role="app",
    sees_standbys=True,
    standbys=2,
    standbys_in_sync=2,
    connections=97,
    others_connections=10,
    hidden_connections=0,
    is_encrypted=True,
    address="10.0.0.5",
    size=50 << 20,
    journal_holder=None,
    trip_seconds=0.001,
    clock_ahead_seconds=0.01,
    planes=2,
    clusters=300,
    agents=[],
    held=[],
    failing_duties=[],
)


def of_database(condition: DatabaseCondition) -> list[Finding]:
    return [
        *doctor.server_findings(condition),
        *doctor.durability_findings(condition),
        *doctor.fleet_findings(condition),
    ]


def test_of_a_sound_database_nothing_is_to_do() -> None:
    findings = of_database(SOUND)
    assert {finding.severity for finding in findings} == {Severity.OK}
    assert not any(finding.remedy for finding in findings)


@pytest.mark.parametrize(
    ("change", "subject", "severity", "says"),
    [
        ({"is_standby": True}, "database", Severity.BAD, "only reads"),
        ({"version": 140009}, "database", Severity.BAD, "older than any that is tried"),
        ({"trip_seconds": 0.05}, "database", Severity.NOTE, "50.0 ms"),
        (
            {"journal_holder": OpenTransaction(4711, "wiki", "ann", "psql", 12.0)},
            "journal",
            Severity.BAD,
            "process 4711 (database 'wiki', user 'ann', 'psql'), open for 12 s",
        ),
        (
            {"journal_holder": OpenTransaction(4711, "wiki", "ann", "psql", None)},
            "journal",
            Severity.NOTE,
            "since when it is open cannot be seen by the role app",
        ),
        ({"lost_settings": ["lock_timeout"]}, "connection", Severity.NOTE, "force: lock_timeout"),
        ({"is_encrypted": False}, "connection", Severity.NOTE, "plain text to 10.0.0.5"),
        ({"others_connections": 70}, "connections", Severity.BAD, "27 for control planes"),
        ({"others_connections": 60}, "connections", Severity.NOTE, "one more has not enough"),
        ({"clock_ahead_seconds": -3.0}, "clock", Severity.NOTE, "3.0 s behind"),
        ({"has_fsync": False}, "durability", Severity.BAD, "fsync is off"),
        ({"has_full_page_writes": False}, "durability", Severity.BAD, "full_page_writes is off"),
        ({"synchronous_commit": "off"}, "commits", Severity.BAD, "before they are on a disk"),
        ({"synchronous_commit": "local"}, "commits", Severity.BAD, "before a standby has them"),
        ({"synchronous_standbys": ""}, "durability", Severity.NOTE, "one server's disk"),
        ({"standbys_in_sync": 0}, "durability", Severity.BAD, "0 of them follow"),
        ({"synchronous_standbys": "any 3(a, b, c)"}, "durability", Severity.BAD, "wait for 3 of"),
        ({"synchronous_standbys": "3 (a, b, c)"}, "durability", Severity.BAD, "2 of them follow"),
        ({"sees_standbys": False}, "durability", Severity.NOTE, "cannot be seen by the role app"),
        ({"planes": 1}, "fleet", Severity.NOTE, "1 control plane runs"),
        ({"agents": ["eu-1 9.9.0"]}, "versions", Severity.BAD, "0.2.0: eu-1 9.9.0"),
        ({"agents": ["eu-1 0.1.0"]}, "versions", Severity.NOTE, "0.2.0: eu-1 0.1.0"),
        ({"held": ["eu-1", "eu-2"]}, "joiners", Severity.NOTE, "accepted: eu-1, eu-2"),
        (
            {"failing_duties": ["keep reports since 2026-11-28T07:00:00Z, no room"]},
            "duties",
            Severity.BAD,
            "background work fails: keep reports since 2026-11-28T07:00:00Z, no room",
        ),
    ],
)
def test_what_is_wrong_is_said_with_a_remedy(
    change: dict[str, object], subject: str, severity: Severity, says: str
) -> None:
    odd = [
        each for each in of_database(replace(SOUND, **change)) if each.severity is not Severity.OK
    ]
    (finding,) = odd
    assert (finding.subject, finding.severity) == (subject, severity)
    assert says in finding.says
    assert finding.remedy


@pytest.mark.parametrize(
    ("names", "servers"),
    [("a", 2), ("a, b", 2), ("*", 2), ("2 (a, b)", 3), ("FIRST 2 (a, b)", 3), ("ANY 1 (a, b)", 2)],
)
def test_only_standbys_that_are_waited_for_are_counted(names: str, servers: int) -> None:
    condition = replace(SOUND, synchronous_standbys=names)
    *_, finding = doctor.durability_findings(condition)
    assert finding.severity is Severity.OK
    assert f"on {servers} servers" in finding.says


def test_standbys_that_cannot_be_seen_are_not_said_to_be_there() -> None:
    hidden = replace(SOUND, sees_standbys=False, standbys_in_sync=0)
    *_, few = doctor.durability_findings(replace(hidden, standbys=0))
    assert few.severity is Severity.BAD
    assert "at most 0 of them" in few.says


@pytest.mark.parametrize(
    ("others", "hidden", "severity", "says"),
    [
        (10, 10, Severity.OK, "at least 87"),
        (60, 10, Severity.NOTE, "one more has not enough"),
        (60, 60, Severity.NOTE, "one more may lack some"),
        (80, 30, Severity.NOTE, "Whether 30 others are workers"),
        (80, 10, Severity.BAD, "at least 17"),
    ],
)
def test_what_others_do_unseen_may_take_connections(
    others: int, hidden: int, severity: Severity, says: str
) -> None:
    condition = replace(SOUND, others_connections=others, hidden_connections=hidden)
    findings = {each.subject: each for each in doctor.server_findings(condition)}
    finding = findings["connections"]
    assert finding.severity is severity
    assert says in finding.says
    assert finding.remedy.startswith("GRANT pg_read_all_stats TO app") == ("Whether" in says)


def test_pages_name_the_version_that_the_doctor_wants() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    named = {
        page.relative_to(ROOT).as_posix(): int(version)
        for page in pages
        for version in WANTED_VERSION.findall(page.read_text(encoding="utf-8"))
    }
    assert set(named) == {"docs/how-to/operate.md", "deploy/control-plane/README.md"}
    assert set(named.values()) == {doctor.TRIED_VERSION}


def test_a_database_on_this_machine_needs_no_encryption() -> None:
    for address in ("", "127.0.0.1", "::1"):
        local = replace(SOUND, address=address, is_encrypted=False)
        assert all(each.severity is Severity.OK for each in doctor.server_findings(local))


def settings_of(folder: Path, **flags: str) -> Settings:
    return load_settings(
        flags=flags, environment={}, document={}, source="", data_dir=folder
    ).settings


def after(days: int, settings: Settings) -> dict[str, Finding]:
    now = datetime.now(UTC) + timedelta(days=days)
    return {each.subject: each for each in doctor.certificate_findings(settings, now)}


def test_certificates_are_told_before_they_end(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["cp.example"])
    settings = settings_of(tmp_path, tls_cert=str(files.cert), tls_ca=str(files.ca))

    def severities(days: int) -> list[Severity]:
        return [each.severity for each in after(days, settings).values()]

    assert severities(0) == [Severity.OK, Severity.OK]
    assert severities(380) == [Severity.NOTE, Severity.OK]
    assert severities(400) == [Severity.BAD, Severity.OK]
    assert severities(3640) == [Severity.BAD, Severity.NOTE]
    assert severities(-1) == [Severity.BAD, Severity.BAD]
    assert "is not good before" in after(-1, settings)["certificate"].says
    files.ca.write_text("nonsense")
    assert severities(0) == [Severity.OK, Severity.BAD]


@pytest.mark.parametrize("name", ["client-ca", "oidc-ca", "token-review-ca"])
def test_authorities_of_callers_are_told_before_they_end(tmp_path: Path, name: str) -> None:
    ca = make_certificates(tmp_path, ["cp.example"]).ca
    api_server = {"token_review": "https://api.example"} if name == "token-review-ca" else {}
    settings = settings_of(tmp_path, **{name.replace("-", "_"): str(ca)}, **api_server)
    assert after(0, settings)[name].severity is Severity.OK
    assert after(3640, settings)[name].severity is Severity.NOTE
    ended = after(3651, settings)[name]
    assert ended.severity is Severity.BAD
    assert str(ca) in ended.says
    assert "are refused" in ended.remedy


def test_an_authority_that_is_asked_for_nothing_is_not_looked_at(tmp_path: Path) -> None:
    """That of the API server has a place of its own even where there is none."""
    assert set(after(0, settings_of(tmp_path))) == {"certificate"}


def test_one_of_several_authorities_may_have_ended_and_none_of_a_chain(tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=3700)
    old = make_certificates(tmp_path / "old", ["a.example"], now=long_ago)
    new = make_certificates(tmp_path / "new", ["a.example"])
    authorities, chain = tmp_path / "authorities.pem", tmp_path / "chain.pem"
    authorities.write_bytes(old.ca.read_bytes() + new.ca.read_bytes())
    chain.write_bytes(new.cert.read_bytes() + old.ca.read_bytes())
    settings = settings_of(tmp_path, tls_cert=str(chain), client_ca=str(authorities))
    findings = after(0, settings)
    assert findings["client-ca"].severity is Severity.NOTE
    assert "the first of 2 certificates" in findings["client-ca"].says
    assert findings["certificate"].severity is Severity.BAD
    assert after(3660, settings)["client-ca"].severity is Severity.BAD


def test_secrets_that_others_can_read_are_told(tmp_path: Path) -> None:
    token = tmp_path / "admin.token"
    token.touch(mode=0o600)
    assert list(doctor.directory_findings(tmp_path, is_embedded=False)) == []
    token.chmod(0o644)
    (finding,) = doctor.directory_findings(tmp_path, is_embedded=False)
    assert (finding.subject, finding.severity) == ("secrets", Severity.BAD)


def test_a_real_database_is_looked_at(fresh_database_url: str, empty_database_url: str) -> None:
    behind = federation("doctor", "-o", "json", FEDERATION_DATABASE_URL=empty_database_url)
    assert behind.returncode == 1
    assert "run `federation migrate`" in behind.stdout
    told = federation("doctor", "-o", "json", FEDERATION_DATABASE_URL=fresh_database_url)
    findings = {each["subject"]: each for each in json.loads(told.stdout)}
    assert findings["database"]["severity"] == "ok"
    assert findings["connection"]["says"] == "on this machine"
    # The tests' own server does not wait for its disk, but for sessions of control planes.
    assert findings["commits"]["severity"] == "ok"
    assert (findings["durability"]["severity"], told.returncode) == ("bad", 1)
    text = federation("doctor", FEDERATION_DATABASE_URL=fresh_database_url).stdout
    assert "bad   durability   fsync is off" in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_an_embedded_database_is_looked_at_while_it_runs(tmp_path: Path) -> None:
    binaries = find_binaries(None, os.environ.get("PATH", ""))
    with EmbeddedPostgres(binaries, tmp_path / "postgres") as embedded:
        upgrade(embedded.url)
        told = federation("doctor", "-o", "json", FEDERATION_DATA_DIR=str(tmp_path))
        findings = {each["subject"]: each for each in json.loads(told.stdout)}
        assert findings["database"]["severity"] == "ok"
        assert "where the embedded PostgreSQL is" in findings["disk"]["says"]
        assert embedded.is_alive()
    assert running_url(tmp_path / "postgres") is None


def test_a_role_that_is_missing_is_told_at_once(fresh_database_url: str) -> None:
    url = make_url(fresh_database_url).set(username="nobody").render_as_string()
    patience = str(10 * START_SECONDS)
    for command in ("doctor", "migrate"):
        told = federation(
            command,
            FEDERATION_DATABASE_URL=url,
            FEDERATION_DATABASE_WAIT_SECONDS=patience,
        )
        assert told.returncode == 1
        said = told.stdout + told.stderr
        assert 'role "nobody" does not exist' in said
        assert "Waited" not in said
