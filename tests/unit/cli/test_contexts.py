"""Contexts: what `fedctl login` keeps, which of it counts, and that no token goes astray."""

from __future__ import annotations

import asyncio
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl
from federation.cli.connection import Connection
from tests.unit.cli.conftest import Secure


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "fedctl" / "config.yaml"
    monkeypatch.setenv("FEDCTL_CONFIG", str(path))
    for name in ("ENDPOINT", "CA", "TOKEN_FILE", "CONTEXT"):
        monkeypatch.delenv(f"FEDCTL_{name}", raising=False)
    return path


@pytest.fixture
def two(file: Path) -> Path:
    file.parent.mkdir()
    contexts = {
        "prod": {"endpoint": "prod.example:1", "ca": "prod.ca.pem", "token-file": "prod.token"},
        "here": {"endpoint": "127.0.0.1:2", "insecure": True, "token-file": "/run/here.token"},
    }
    file.write_text(yaml.safe_dump({"current-context": "prod", "contexts": contexts}))
    return file


def asked(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(fedctl, list(arguments), input=text)


def connection_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Connection:
    """Where a verb would ask."""
    seen: list[Connection] = []

    def note(connection: Connection, *_: object) -> None:
        seen.append(connection)
        raise click.Abort

    monkeypatch.setattr(Connection, "call", note)
    asked(*arguments)
    (connection,) = seen
    return connection


BEFORE_AND_AFTER = pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])


def verb(*options: str, is_after: bool) -> tuple[str, ...]:
    return ("get", "clusters", *options) if is_after else (*options, "get", "clusters")


def test_the_context_that_counts_says_all(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connection_of(monkeypatch, "get", "clusters")
    folder = two.parent
    assert connection.endpoint == "prod.example:1"
    assert (connection.ca, connection.token_file) == (folder / "prod.ca.pem", folder / "prod.token")
    assert not connection.insecure


@BEFORE_AND_AFTER
@pytest.mark.usefixtures("two")
def test_another_one_is_named(monkeypatch: pytest.MonkeyPatch, is_after: bool) -> None:
    connection = connection_of(monkeypatch, *verb("--context", "here", is_after=is_after))
    assert (connection.endpoint, connection.ca) == ("127.0.0.1:2", None)
    assert connection.insecure
    assert connection.token_file == Path("/run/here.token")


@BEFORE_AND_AFTER
@pytest.mark.usefixtures("two")
def test_its_token_is_not_sent_to_another_endpoint(
    monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    options = ("--token-file", "mine", "--endpoint", "other.example:3")
    for said in (options[2:], options, options[2:] + options[:2]):
        connection = connection_of(monkeypatch, *verb(*said, is_after=is_after))
        assert (connection.endpoint, connection.ca) == ("other.example:3", None)
        if len(said) == len(options):
            assert connection.token_file == Path("mine")
        else:
            assert connection.token_file.name == "admin.token"


@BEFORE_AND_AFTER
def test_an_option_comes_before_the_chosen_context(
    two: Path, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    options = ("--endpoint", "127.0.0.1:9", "--context", "prod")
    connection = connection_of(monkeypatch, *verb(*options, is_after=is_after))
    assert connection.endpoint == "127.0.0.1:9"
    assert connection.token_file == two.parent / "prod.token"


def test_variables_come_before_the_context_that_counts(
    two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDCTL_ENDPOINT", "other.example:3")
    assert connection_of(monkeypatch, "get", "clusters").token_file.name == "admin.token"
    monkeypatch.setenv("FEDCTL_CONTEXT", "prod")
    connection = connection_of(monkeypatch, "get", "clusters")
    assert connection.endpoint == "other.example:3"
    assert connection.token_file == two.parent / "prod.token"


def test_contexts_are_listed_used_and_forgotten(two: Path) -> None:
    (two.parent / "prod.token").write_text("secret")
    assert [
        line.split()[0] for line in asked("config", "get-contexts").stdout.splitlines()[1:]
    ] == [
        "here",
        "*",
    ]
    assert asked("config", "use-context", "here").exit_code == 0
    assert asked("config", "delete-context", "prod").exit_code == 0
    assert not (two.parent / "prod.token").exists()
    document = yaml.safe_load(two.read_text())
    assert (document["current-context"], list(document["contexts"])) == ("here", ["here"])
    for words in (("use-context", "prod"), ("delete-context", "prod")):
        refused = asked("config", *words)
        assert refused.exit_code == 1
        assert "there is no context 'prod'" in refused.stderr


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("contexts: [a]", "contexts: must hold contexts by their names"),
        ("contexts: {a: 1}", "contexts.a: must hold fields"),
        ("contexts: {a: {endpiont: b}}", "contexts.a.endpiont: unknown field"),
        ("contexts: {a: {insecure: 1}}", "contexts.a.insecure: must be true or false"),
        ("current-context: a", "current-context: names no context"),
        ("colour: blue", "colour: unknown field"),
        ("a: [", "config.yaml"),
    ],
)
def test_a_wrong_file_is_refused_by_field(file: Path, content: str, complaint: str) -> None:
    file.parent.mkdir()
    file.write_text(content)
    refused = asked("get", "clusters")
    assert refused.exit_code == 2
    assert f"Error: {file}" in refused.stderr
    assert complaint in refused.stderr


@BEFORE_AND_AFTER
def test_a_certificate_of_a_context_is_for_its_endpoint_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch, is_after: bool
) -> None:
    file.parent.mkdir()
    context = {"endpoint": "prod.example:1", "client-cert": "me.pem", "client-key": "/me.key"}
    file.write_text(yaml.safe_dump({"current-context": "prod", "contexts": {"prod": context}}))
    found = connection_of(monkeypatch, "get", "clusters")
    assert (found.client_cert, found.client_key) == (file.parent / "me.pem", Path("/me.key"))
    for options in (("--endpoint", "other.example:3"), ("--token-file", "mine")):
        found = connection_of(monkeypatch, *verb(*options, is_after=is_after))
        assert (found.client_cert, found.client_key) == (None, None)


def test_login_with_a_certificate_keeps_where_it_is(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Connection, "call", lambda *_: SimpleNamespace(actor="ann"))
    options = ("--endpoint", "cp.example:1", "--client-cert", "me.pem", "--client-key", "me.key")
    done = asked("login", "prod", *options)
    assert done.exit_code == 0, done.stderr
    (context,) = yaml.safe_load(file.read_text())["contexts"].values()
    assert context == {
        "endpoint": "cp.example:1",
        "client-cert": str(tmp_path / "me.pem"),
        "client-key": str(tmp_path / "me.key"),
        "insecure": False,
    }
    assert [path.name for path in file.parent.iterdir()] == ["config.yaml"]


async def test_login_keeps_what_was_tried(secure: Secure, tmp_path: Path, file: Path) -> None:
    ca = shutil.copy(secure.files.ca, tmp_path / "ca.pem")
    where = ("--endpoint", secure.endpoint, "--ca", str(ca))
    token = secure.running.plane.admin_token_file.read_text(encoding="ascii")
    for wrong, words in (("", "must not be empty"), ("nonsense", "token")):
        refused = await asyncio.to_thread(asked, "login", "prod", *where, text=wrong)
        assert refused.exit_code == 1
        assert words in refused.stderr
    refused = await asyncio.to_thread(asked, "login", "../prod", *where, text=token)
    assert "NAME: must be" in refused.stderr
    assert not await asyncio.to_thread(file.exists)
    done = await asyncio.to_thread(asked, "login", "prod", *where, text=token)
    assert done.exit_code == 0, done.stderr
    assert token.strip() not in done.output
    ca.unlink()
    listed = await asyncio.to_thread(asked, "get", "clusters")
    assert listed.exit_code == 0, listed.stderr
    kept = {each.name: stat.S_IMODE(each.stat().st_mode) for each in file.parent.iterdir()}
    assert kept == {"config.yaml": 0o600, "prod.token": 0o600, "prod.ca.pem": 0o600}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_told_how_to_complete(shell: str) -> None:
    assert "_FEDCTL_COMPLETE" in asked("completion", shell).stdout
    environment = {"_FEDCTL_COMPLETE": f"{shell}_complete", "COMP_WORDS": "fedctl get cl"}
    environment["COMP_CWORD"] = "cl" if shell == "fish" else "2"
    answer = CliRunner().invoke(fedctl, [], env=environment, prog_name="fedctl")
    assert "clusters" in answer.stdout
