"""Verbs that end something say what ends, and ask on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from tests.unit.cli.hostile import hostile_server

UID = "8f6f4a2e-0c0b-4d52-9f0e-2f3f5c1d7a90"
# Nothing listens there: what is refused is refused before anybody is called.
NOBODY = ("--insecure", "--endpoint", "127.0.0.1:1", "--token-file", os.devnull)


@pytest.mark.parametrize("uid", ["not a uid", "", "A", "a\x1b[2J"])
def test_a_uid_that_is_none_is_refused_by_name(uid: str) -> None:
    result = CliRunner().invoke(fedctl, [*NOBODY, "replace", "member1", "--uid", uid, "--yes"])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: --uid: ")


def test_without_a_terminal_it_must_be_told() -> None:
    result = CliRunner().invoke(fedctl, [*NOBODY, "replace", "member1", "--uid", UID])
    assert result.exit_code == 2
    assert "--yes" in result.stderr


def on_a_terminal(endpoint: str, token: Path, answer: bytes, *verb: str) -> tuple[int, str]:
    """The exit code, and everything that the terminal showed."""
    ours, theirs = pty.openpty()
    flags = ["--insecure", "--endpoint", endpoint, "--token-file", str(token)]
    command = [sys.executable, "-m", "federation.cli", *flags, *verb]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, answer)
        shown = b""
        try:
            while chunk := os.read(ours, 4096):
                shown += chunk
        except OSError:
            pass  # That is how a terminal says that nobody is left.
        code = process.wait(60)
    os.close(ours)
    return code, shown.decode()


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_on_a_terminal_it_asks(answer: bytes, code: int, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with hostile_server() as endpoint:
        verb = ("replace", "member1", "--uid", UID)
        found, shown = on_a_terminal(endpoint, token, answer, *verb)
    assert found == code, shown
    assert "credentials" in shown
    assert UID in shown
    assert ("now belongs to" in shown) == (code == 0)


ENDING = {
    "deleted": ("delete", "binding", "shop/web"),
    "cluster/member1 deleted": ("delete", "cluster", "member1"),
    "revoked, credentials ended": ("revoke", "member1"),
    "rejected": ("reject", "member1"),
    "released": ("release", "shop/web"),
}


@pytest.mark.parametrize("done", ENDING)
def test_verbs_that_end_something_ask_on_a_terminal(done: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    with hostile_server() as endpoint:
        code, shown = on_a_terminal(endpoint, token, b"n\n", *ENDING[done])
        assert code == 1
        assert "This ends " in shown or "This deletes " in shown
        assert ENDING[done][-1] in shown
        assert done not in shown
        assert "aborted" in shown
        code, shown = on_a_terminal(endpoint, token, b"y\n", *ENDING[done])
        assert (code, done in shown) == (0, True), shown
        connecting = ["--insecure", "--endpoint", endpoint, "--token-file", str(token)]
        # Scripts ask nobody, with --yes and without.
        for options in ((), ("--yes",)):
            result = CliRunner().invoke(fedctl, [*connecting, *ENDING[done], *options])
            assert result.exit_code == 0, result.output
            assert "Go on?" not in result.output
