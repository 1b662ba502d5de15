"""``fedctl replace`` ends what is known of a cluster: it checks, says what ends, and asks."""

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


def on_a_terminal(endpoint: str, token: Path, answer: bytes) -> tuple[int, str]:
    """The exit code, and everything that the terminal showed."""
    ours, theirs = pty.openpty()
    flags = ["--insecure", "--endpoint", endpoint, "--token-file", str(token)]
    command = [sys.executable, "-m", "federation.cli", *flags, "replace", "member1", "--uid", UID]
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
        found, shown = on_a_terminal(endpoint, token, answer)
    assert found == code, shown
    assert "credentials" in shown
    assert UID in shown
    assert ("now belongs to" in shown) == (code == 0)
