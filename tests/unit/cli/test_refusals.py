"""What went wrong, why, and what to do: each as somebody reads it who does not know gRPC."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl
from federation.cli.connection import explained
from federation.model.errors import NotFound, Unavailable
from federation.runtime import terminal
from federation.runtime.terminal import with_progress
from tests.unit.cli.conftest import Secure


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    endpoint: str = "cp.example:7443"
    ca: Path | None = None
    insecure: bool = False


@pytest.mark.parametrize(
    ("message", "said", "why"),
    [
        (
            "Received http2 header with status: 404",
            Said(),
            "what answers at cp.example:7443 is no control plane's API; check --endpoint: ",
        ),
        (
            "Ssl handshake failed: SSL_ERROR_SSL: WRONG_VERSION_NUMBER",
            Said(),
            "cp.example:7443 does not speak TLS: is it served with --insecure? Then say so here",
        ),
        (
            "Socket closed",
            Said(insecure=True),
            "it may speak TLS: leave --insecure out, and name its authority with --ca",
        ),
        (
            "CERTIFICATE_VERIFY_FAILED: self signed certificate: OK",
            Said(),
            "(self signed certificate): name its authority with --ca",
        ),
        (
            "failed to connect to all addresses; last error: Connection refused",
            Said(endpoint="a:1,b:2"),
            "nothing listens at a:1 or b:2 (connection refused): does it run there? ",
        ),
        ("DNS resolution failed for cp.example:7443", Said(), "nobody knows the name in cp.ex"),
        ("No route to host", Said(), "no network leads to cp.example:7443: is a VPN"),
        ("something else", Said(), "cp.example:7443 cannot be reached: something else"),
    ],
)
def test_what_grpc_says_is_explained(message: str, said: Said, why: str) -> None:
    assert why in (explained(Unavailable(message), said) or "")


def test_what_the_control_plane_says_itself_is_left_as_it_is() -> None:
    error = Unavailable("the agent of cluster m1 went away before it answered")
    error.is_answer = True
    assert explained(error, Said()) is None
    assert explained(NotFound("there is none"), Said()) is None
    away = Unavailable("The database cannot be reached now; try again later.")
    away.is_answer = True
    why = explained(away, Said()) or ""
    assert why.startswith("The database cannot be reached now; try again later. The control plane ")
    assert "`federation doctor` on its machine says more" in why


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(fedctl, [*arguments])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["gett", "clusters"], "No such command 'gett'. Did you mean 'get'?"),
        (["zzz"], "No such command 'zzz'. fedctl --help lists all of them."),
    ],
)
def test_a_verb_that_is_none(words: list[str], told: str) -> None:
    result = asked(*words)
    assert result.exit_code == 2
    assert told in result.stderr


def checks(*arguments: str) -> dict[str, tuple[str, str]]:
    result = asked("doctor", *arguments, "-o", "json")
    found = json.loads(result.stdout)
    is_bad = any(each["state"] == "bad" for each in found)
    assert result.exit_code == (1 if is_bad else 0), result.output
    return {each["subject"]: (each["state"], f"{each['says']} {each['remedy']}") for each in found}


async def test_doctor(secure: Secure) -> None:
    endpoint, ca = secure.endpoint, str(secure.files.ca)

    async def found(*arguments: str) -> dict[str, tuple[str, str]]:
        return await asyncio.to_thread(checks, "--token-file", secure.token_file, *arguments)

    good = await found("--endpoint", endpoint, "--ca", ca)
    assert {state for state, _ in good.values()} == {"ok", "note"}
    assert " as admin" in good[endpoint][1]
    assert good["fleet"] == (
        "note",
        "has no clusters let one join: fedctl join-token create --cluster NAME",
    )
    stranger = await found("--endpoint", endpoint)
    assert "name its authority with --ca" in stranger[f"{endpoint} TLS"][1]
    plain = await found("--endpoint", endpoint, "--insecure")
    assert "it may speak TLS: leave --insecure out" in plain[endpoint][1]
    two = await found("--endpoint", f"127.0.0.1:1,{endpoint}", "--ca", ca)
    assert two["127.0.0.1:1"][0] == "bad"
    assert "start it there, or check the port" in two["127.0.0.1:1"][1]
    assert two[endpoint][0] == "ok"


def test_doctor_reads_the_token_file(tmp_path: Path) -> None:
    nobody = ["--endpoint", "127.0.0.1:1", "--token-file"]
    missing = checks(*nobody, str(tmp_path / "none"))["token file"]
    assert missing[0] == "bad"
    assert "keep one with `fedctl login`" in missing[1]
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\n")
    assert "holds no token" in checks(*nobody, str(key))["token file"][1]
    token = tmp_path / "token"
    token.write_text("a.b\n")
    token.chmod(0o644)
    assert checks(*nobody, str(token))["token file"] == (
        "note",
        f"{token} can be read by others on this machine chmod 600 {token}",
    )
    token.chmod(0o600)
    assert checks(*nobody, str(token))["token file"][0] == "ok"


def test_a_plain_port_is_told_from_tls(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(None)
        port = listener.getsockname()[1]

        def answer() -> None:
            talk, _ = listener.accept()
            with talk:
                talk.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                talk.recv(65536)

        thread = threading.Thread(target=answer)
        thread.start()
        found = checks("--endpoint", f"127.0.0.1:{port}", "--token-file", str(tmp_path / "none"))
        thread.join()
    assert "say --insecure where it is served without TLS" in found[f"127.0.0.1:{port} TLS"][1]


def test_progress_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [*with_progress("ab", "read", 2)] == ["a", "b"]
    assert capsys.readouterr().err == ""
    told: list[str] = []
    monkeypatch.setattr(terminal, "overwrite", told.append)
    monkeypatch.setattr("sys.stderr", _Terminal())
    assert [*with_progress("ab", "read", 2)] == ["a", "b"]
    assert told[:2] == ["read: 0 of 2", "read: 1 of 2"]
    assert told[-1] == "", "nothing of it stays"


class _Terminal:
    def isatty(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None
