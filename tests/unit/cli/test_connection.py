"""What ``fedctl`` says of a control plane whose certificate it does not trust."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from federation.certificates import make_certificates
from federation.cli import connection
from federation.cli.__main__ import fedctl
from lab.control_planes import RunningControlPlane
from lab.patience import PATIENCE_SECONDS
from tests.unit.cli.calling import flags_for
from tests.unit.cli.conftest import Secure


async def test_the_option_that_is_at_fault_is_named(secure: Secure, tmp_path: Path) -> None:
    other = make_certificates(tmp_path / "other", ["127.0.0.1"])
    for trust, remedy in (
        ([], "name its authority with --ca"),
        (["--ca", str(other.ca)], f"--ca is {other.ca}"),
    ):
        where = ["--endpoint", secure.endpoint, "--token-file", secure.token_file]
        arguments = [*where, *trust, "get", "clusters"]
        result = await asyncio.to_thread(CliRunner().invoke, fedctl, arguments)
        assert result.exit_code == 1
        said = f"error: the certificate of {secure.endpoint} is not trusted ("
        assert result.stderr.startswith(said)
        assert result.stderr.rstrip().endswith(f"): {remedy}")


def asked(*arguments: str, seconds: float = PATIENCE_SECONDS) -> subprocess.CompletedProcess[str]:
    """A real ``fedctl``: what its libraries write by themselves is seen too."""
    return subprocess.run(
        [sys.executable, "-m", "federation.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def refusal(answer: subprocess.CompletedProcess[str]) -> str:
    """The one line that it ends with."""
    assert answer.returncode == 1, answer
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1, answer.stderr
    return answer.stderr.removeprefix("error: ").rstrip("\n")


async def test_plain_text_and_tls_are_told_apart(
    secure: Secure, running: RunningControlPlane, tmp_path: Path
) -> None:
    async def refused(*arguments: str) -> str:
        return refusal(await asyncio.to_thread(asked, "get", "clusters", *arguments))

    flags = ("--token-file", secure.token_file, "--endpoint", secure.endpoint)
    said = await refused("--insecure", *flags)
    assert secure.endpoint in said
    assert "it may speak TLS: leave --insecure out" in said
    assert f"the certificate of {secure.endpoint} is not trusted" in await refused(*flags)
    _, *plain = flags_for(running)
    said = await refused("--ca", str(secure.files.ca), *plain)
    assert said.startswith(f"{running.plane.endpoint} does not speak TLS")
    wrong = tmp_path / "wrong.token"
    wrong.write_text("nobody.knows")
    said = await refused("--insecure", *plain[:2], "--token-file", str(wrong))
    assert f"The token is that of {wrong} (--token-file)." in said


@pytest.fixture
def silent() -> Iterator[str]:
    """Where somebody listens and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("trust", [["--insecure"], []])
@pytest.mark.parametrize("before", [True, False])
def test_who_does_not_answer_in_time_is_named(
    silent: str, trust: list[str], before: bool, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a.b")
    options = [*trust, "--endpoint", silent, "--token-file", str(token), "--timeout", "0.5"]
    verb = ["explain", "shop/web"]
    answer = asked(*options, *verb) if before else asked(*verb, *options)
    assert refusal(answer) == f"no answer from {silent} within 0.5 s (--timeout)"


def test_what_is_said_after_the_verb_comes_first(silent: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a.b")
    said = ["--endpoint", silent, "--timeout", "0.3"]  # --insecure stays as it was said.
    answer = asked(
        *("--insecure", "--endpoint", "127.0.0.1:1", "--token-file", str(token)),
        *("get", *said, "bindings", "-n", "shop", "--timeout", "0.4"),
    )
    assert refusal(answer) == f"no answer from {silent} within 0.4 s (--timeout)"


def test_files_that_are_no_good_are_named(tmp_path: Path) -> None:
    missing, empty, binary = (tmp_path / name for name in ("missing", "empty", "binary"))
    empty.write_bytes(b"")
    binary.write_bytes(b"\x00\xff\n\n")
    token = ["get", "clusters", "--token-file"]
    assert refusal(asked(*token, str(missing))).startswith(f"--token-file: cannot read {missing}:")
    assert refusal(asked(*token, str(tmp_path))).startswith(f"--token-file: cannot read {tmp_path}")
    assert refusal(asked(*token, str(binary))).startswith(f"--token-file {binary}: must be")
    assert refusal(asked(*token, str(empty), "--ca", str(missing))).startswith(
        f"--ca: cannot read {missing}:"
    )
    for no_ca in (empty, binary):
        said = refusal(asked(*token, str(empty), "--ca", str(no_ca)))
        assert said == f"--ca {no_ca}: holds no certificate in PEM form"


def test_nobody_listens(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a.b")
    answer = asked("get", "clusters", "--endpoint", "127.0.0.1:1", "--token-file", str(token))
    assert refusal(answer).startswith("nothing listens at 127.0.0.1:1 (connection refused)")


@pytest.mark.parametrize(("said", "seconds"), [([], "0.4"), (["--timeout", "0.3"], "0.3")])
@pytest.mark.parametrize("verb", [["plan", "create", "drain", "member1"], ["plan", "approve", "1"]])
def test_a_plan_is_waited_for_and_people_are_told_meanwhile(
    silent: str,
    verb: list[str],
    said: list[str],
    seconds: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "PATIENT_SECONDS", 0.4)
    monkeypatch.setattr(connection, "TOLD_EVERY_SECONDS", 0.1)
    token = tmp_path / "token"
    token.write_text("a.b")
    options = ["--insecure", "--endpoint", silent, "--token-file", str(token), *said]
    answer = CliRunner().invoke(fedctl, [*options, *verb])
    assert answer.exit_code == 1, answer.output
    assert f"no answer from {silent} within {seconds} s (--timeout)" in answer.stderr
    assert " s so far\n" in answer.stderr
