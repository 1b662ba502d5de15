"""What ``federation`` says when it cannot start, and its smaller commands."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
import yaml
from click.testing import CliRunner

from federation.certificates import ca_fingerprint
from federation.cli.__main__ import fedctl
from federation.store.migrate import pending
from lab.databases import connect, run
from lab.patience import PATIENCE_SECONDS
from lab.servers import await_status, federation, started

# MessagePack: {"v": 2}.
NEWER = {
    "reservations": r"""
        INSERT INTO reservation (namespace, name, uid, clusters, body)
        VALUES ('', 'web', '', '{a}', '\x81a17602')
    """,
    "reports": """
        WITH added AS (
            INSERT INTO cluster (name, uid, spec, facts, kubernetes_version, generation, version)
            VALUES ('a', '', '{}', '{}', '', 1, 1) RETURNING id
        )
        INSERT INTO cluster_report (cluster_id, body) SELECT id, '{"v": 2}' FROM added
    """,
}
PORTS = ("--listen", "127.0.0.1:0", "--web-listen", "127.0.0.1:0")


def test_plain_text_beyond_loopback_is_refused_by_rule(tmp_path: Path) -> None:
    refused = federation(
        *("serve", "--insecure", "--listen", "0.0.0.0:0", "--data-dir", str(tmp_path))
    )
    assert refused.returncode == 2
    assert "--insecure: plain text is served on loopback addresses only" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_everything_wrong_with_the_settings_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "fedsched.yaml"
    file.write_text("listen: nowhere\ncolour: blue\n")
    refused = federation("serve", "--config", str(file), FEDERATION_LOG_LEVEL="loud")
    assert refused.returncode == 2
    assert f"{file}: listen" in refused.stderr
    assert f"{file}: colour" in refused.stderr
    assert "FEDERATION_LOG_LEVEL" in refused.stderr


@pytest.mark.parametrize("content", ["a: [", "- 1\n", "a: 1\na: 2\n", "a: 1\n---\nb: 2\n"])
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "fedsched.yaml"
    file.write_text(content)
    refused = federation("show-config", FEDERATION_CONFIG=str(file))
    assert refused.returncode == 2
    assert str(file) in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_database_that_is_not_there_is_waited_for_and_then_named(tmp_path: Path) -> None:
    refused = federation(
        *("serve", "--insecure", *PORTS, "--data-dir", str(tmp_path)),
        *("--database-wait-seconds", "0.5"),
        FEDERATION_DATABASE_URL="postgresql://user:s3cret@127.0.0.1:1/fedsched",
    )
    assert refused.returncode == 1
    assert "FEDERATION_DATABASE_URL" in refused.stderr
    assert "127.0.0.1" in refused.stderr
    assert "--database-wait-seconds" in refused.stderr
    assert "waiting for the database" in refused.stderr
    assert "s3cret" not in refused.stderr
    assert "Traceback" not in refused.stderr


def test_without_postgres_programs_it_says_what_to_do(tmp_path: Path) -> None:
    refused = federation(
        *("serve", "--insecure", *PORTS, "--data-dir", str(tmp_path / "state")),
        FEDERATION_POSTGRES_BIN=str(tmp_path),
    )
    assert refused.returncode == 1
    assert "FEDERATION_DATABASE_URL" in refused.stderr
    assert "fedsched[embedded]" in refused.stderr


def test_a_schema_of_somebody_else_is_migrated_only_when_asked(
    tmp_path: Path, empty_database_url: str
) -> None:
    url = {"FEDERATION_DATABASE_URL": empty_database_url}
    serve = ("--insecure", *PORTS, "--data-dir", str(tmp_path))
    refused = federation("serve", *serve, **url)
    assert refused.returncode == 1
    assert "federation migrate" in refused.stderr
    assert pending(empty_database_url) != []
    migrated = federation("migrate", **url)
    assert migrated.returncode == 0
    assert "ran 1000" in migrated.stdout
    assert pending(empty_database_url) == []
    again = federation("migrate", **url)
    assert "nothing to do" in again.stdout
    with started(*serve, **url) as server:
        server.await_line("API")
        assert server.stop() == 0


def test_a_lost_admin_token_is_replaced(tmp_path: Path, empty_database_url: str) -> None:
    url = {"FEDERATION_DATABASE_URL": empty_database_url}
    behind = federation("admin-token", **url)
    assert (behind.returncode, behind.stdout) == (1, "")
    assert "federation migrate" in behind.stderr
    serve = ("--insecure", "--migrate", *PORTS, "--data-dir", str(tmp_path))
    with started(*serve, **url) as server:
        server.await_line("API")
        first = (tmp_path / "admin.token").read_text(encoding="utf-8")
        assert server.stop() == 0
    second, third = (federation("admin-token", **url).stdout for _ in range(2))
    with started(*serve, **url) as server:
        endpoint = server.await_line(r"API +(\S+)")[1]
        for token, exit_code in ((first, 1), (second, 1), (third, 0)):
            (tmp_path / "token").write_text(token, encoding="utf-8")
            common = ("--insecure", "--endpoint", endpoint, "--token-file", tmp_path / "token")
            asked = CliRunner().invoke(fedctl, [*map(str, common), "get", "clusters"])
            assert asked.exit_code == exit_code, asked.output
        audited = CliRunner().invoke(fedctl, [*map(str, common), "audit", "list", "-o", "json"])
    records = [each for each in json.loads(audited.stdout) if "admin-token" in each["method"]]
    assert len(records) == 2
    assert not any(token.strip() in audited.stdout for token in (first, second, third))


def test_a_schema_of_a_newer_release_is_left_alone(tmp_path: Path, fresh_database_url: str) -> None:
    async def move_on() -> None:
        connection = await connect(fresh_database_url)
        await connection.execute("UPDATE alembic_version SET version_num = '9999'")
        await connection.close()

    run(move_on())
    url = {"FEDERATION_DATABASE_URL": fresh_database_url}
    serve = ("serve", "--insecure", "--migrate", *PORTS, "--data-dir", str(tmp_path))
    for command in (serve, ("migrate",)):
        refused = federation(*command, **url)
        assert refused.returncode == 1
        assert "a newer release migrated it" in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("what", NEWER)
def test_promises_and_reports_of_a_newer_release_stop_the_start(
    tmp_path: Path, fresh_database_url: str, what: str
) -> None:
    async def write() -> None:
        connection = await connect(fresh_database_url)
        await connection.execute(NEWER[what])
        await connection.close()

    run(write())
    refused = federation(
        *("serve", "--insecure", *PORTS, "--data-dir", str(tmp_path)),
        FEDERATION_DATABASE_URL=fresh_database_url,
    )
    assert refused.returncode == 1
    (line,) = [each for each in refused.stderr.splitlines() if "of version 2" in each]
    assert f"holds {what} of version 2, which a newer release wrote" in line
    assert "Run the newer release." in line
    assert "Traceback" not in refused.stderr


def test_the_printed_command_serves_with_the_certificates_made(
    tmp_path: Path, database_url: str
) -> None:
    made = federation("certs", "--dir", str(tmp_path / "certs"), "--host", "127.0.0.1")
    assert made.returncode == 0
    arguments = made.stdout.split()
    assert arguments[:2] == ["federation", "serve"]
    with started(
        *(*arguments[2:], *PORTS, "--data-dir", str(tmp_path), "--log-format", "json"),
        FEDERATION_DATABASE_URL=database_url,
    ) as server:
        written = json.loads(server.await_line("admin token written").string)
        assert written["path"] == str(tmp_path / "admin.token")
        endpoint = server.await_line(r"API +(\S+) \(TLS").group(1)
        web = server.await_line(r"web +(http://[^/]+)").group(1)
        await_status(f"{web}/ca.pem", 200)
        ca = (tmp_path / "certs" / "ca.pem").read_bytes()
        assert len(ca_fingerprint(ca)) == 64
        with grpc.secure_channel(endpoint, grpc.ssl_channel_credentials(ca)) as channel:
            grpc.channel_ready_future(channel).result(timeout=PATIENCE_SECONDS)


def test_a_key_that_is_not_the_certificates_is_refused(tmp_path: Path, database_url: str) -> None:
    for name in ("a", "b"):
        federation("certs", "--dir", str(tmp_path / name))
    refused = federation(
        *("serve", *PORTS, "--data-dir", str(tmp_path)),
        *("--tls-cert", str(tmp_path / "a" / "server.pem")),
        *("--tls-key", str(tmp_path / "b" / "server.key")),
        *("--tls-ca", str(tmp_path / "a" / "ca.pem")),
        FEDERATION_DATABASE_URL=database_url,
    )
    assert refused.returncode == 1
    assert "cannot be used" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_directory_that_cannot_be_made_is_told_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in (
        ("certs", "--dir", str(tmp_path / "file" / "certs")),
        ("serve", "--insecure", *PORTS, "--data-dir", str(tmp_path / "file" / "state")),
    ):
        refused = federation(*command)
        assert refused.returncode == 1
        assert str(tmp_path / "file") in refused.stderr
        assert "Traceback" not in refused.stderr


def test_settings_are_shown_with_their_origin_and_without_secrets(tmp_path: Path) -> None:
    file = tmp_path / "fedsched.yaml"
    file.write_text("heartbeat_seconds: 3\n")
    arguments = ("show-config", "--config", str(file), "--listen", "127.0.0.1:1")
    url = {"FEDERATION_DATABASE_URL": "postgresql://user:s3cret@db/fedsched"}
    outputs = {
        form: federation(*arguments, "-o", form, **url).stdout for form in ("text", "json", "yaml")
    }
    assert not any("s3cret" in output for output in outputs.values())
    rows = {row["name"]: row for row in json.loads(outputs["json"])}
    assert rows == {row["name"]: row for row in yaml.safe_load(outputs["yaml"])}
    assert rows["listen"]["origin"] == "flag --listen"
    assert rows["database_url"]["origin"] == "environment FEDERATION_DATABASE_URL"
    assert rows["heartbeat_seconds"]["origin"] == f"file {file}: heartbeat_seconds"
    assert rows["log_format"]["origin"] == "default"
    assert "flag --listen" in outputs["text"]


def test_relative_state_homes_are_ignored(tmp_path: Path) -> None:
    def data_dir(home: str) -> str:
        shown = federation("show-config", "-o", "json", XDG_STATE_HOME=home, HOME="/home/me")
        return str({row["name"]: row["value"] for row in json.loads(shown.stdout)}["data_dir"])

    assert data_dir("/var/state") == "/var/state/fedsched"
    assert data_dir("relative") == "/home/me/.local/state/fedsched"


@pytest.mark.parametrize(
    "command", [[], ["serve"], ["migrate"], ["admin-token"], ["certs"], ["show-config"]]
)
def test_help_has_an_example(command: list[str]) -> None:
    shown = federation(*command, "--help")
    assert shown.returncode == 0
    assert "Example" in shown.stdout
