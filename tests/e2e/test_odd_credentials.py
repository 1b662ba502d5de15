"""No credential reaches any output, however odd it is: every program is fed odd ones.

A token may have white space around it. Any other character that a header cannot hold is refused,
by a message that names where the token is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from estimator.credential import Credential, CredentialFile, load_credential, store_credential
from estimator.kube.client import KubeClient
from federation.model.errors import FederationError, PreconditionFailed
from lab.agents import ROOT
from lab.binders import cluster_of
from lab.control_planes import RunningControlPlane, refused, running_control_plane
from lab.kubeapi.documents import node
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.patience import PATIENCE_SECONDS

CORE = "s3cr3t-core-of-a-token"
REFUSED = [
    f"{CORE}\nof two lines",
    f"{CORE}\r{CORE}",
    f"{CORE}\x00",
    f"\tnot {CORE}\tasc\u00efi",
    f"\U0001f511{CORE}",
    f"{CORE}\x7f",
    " \n",
]
# Taken as tokens, which nobody knows.
TAKEN = [f"{CORE}\n"]
RULE = "printable ASCII characters on one line"
ROLE_RULES = """
apiVersion: fedsched.io/v1
kind: RoleRules
rules:
- {from: kubernetes, claim: username, value: "*", role: viewer}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[KubeApiServer]:
    with KubeApiServer(cluster_of(node("a"))) as running:
        yield running


def kubeconfig(server: KubeApiServer, folder: Path, token: str, *, in_file: bool) -> Path:
    path = server.kubeconfig(folder / "kubeconfig", token)
    if in_file:
        (folder / "kube.token").write_bytes(token.encode())
        document = json.loads(path.read_text())
        document["users"][0]["user"] = {"tokenFile": str(folder / "kube.token")}
        path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("in_file", [True, False], ids=["tokenFile", "token"])
@pytest.mark.parametrize("around", ["{}", "{}\n", "\n{} \r\n"])
async def test_white_space_around_a_token_of_kubernetes_does_not_matter(
    server: KubeApiServer, tmp_path: Path, around: str, in_file: bool
) -> None:
    path = kubeconfig(server, tmp_path, around.format(ADMIN_TOKEN), in_file=in_file)
    async with KubeClient(path) as client:
        assert await client.cluster_facts()


@pytest.mark.parametrize("in_file", [True, False], ids=["tokenFile", "token"])
@pytest.mark.parametrize("odd", REFUSED[:-1], ids=ascii)
async def test_what_is_no_token_of_kubernetes_is_refused_by_the_name_of_its_file(
    server: KubeApiServer, tmp_path: Path, odd: str, in_file: bool
) -> None:
    path = kubeconfig(server, tmp_path, odd, in_file=in_file)
    async with KubeClient(path) as client:
        with pytest.raises(PreconditionFailed) as refused:
            await client.check()
    assert str(path) in refused.value.message
    assert CORE not in refused.value.message


@pytest.mark.parametrize("odd", REFUSED, ids=ascii)
async def test_a_kept_credential_that_is_none_is_refused(tmp_path: Path, odd: str) -> None:
    store = CredentialFile(tmp_path / "agent.json")
    kept = Credential(cluster="member1", endpoints=(), credential=odd, expires_at=9e9)
    await store_credential(store, kept)
    with pytest.raises(FederationError) as refused:
        await load_credential(store, cluster="member1")
    assert str(tmp_path / "agent.json") in refused.value.message
    assert CORE not in refused.value.message


def commands(server: KubeApiServer, folder: Path, odd: str) -> Iterator[tuple[str, ...]]:
    """Every program, with the odd credential wherever it takes one."""
    token = folder / "token"
    token.write_bytes(odd.encode())
    kube = kubeconfig(server, folder, odd, in_file=True)
    store = CredentialFile(folder / "agent.json")
    kept = Credential(cluster="member1", endpoints=("127.0.0.1:1",), credential=odd, expires_at=9e9)
    asyncio.run(store_credential(store, kept))
    dump = ("--from", str(ROOT / "examples" / "clusters" / "member1.json"))
    agent = ("--cluster", "member1", "--endpoint", "127.0.0.1:1", "--insecure")
    own = ("--credential-file", str(folder / "agent.json"))
    new = ("--credential-file", str(folder / "none.json"))
    yield "estimator", "doctor", "-o", "json", *agent, *own, "--kubeconfig", str(kube)
    yield "estimator", "run", *agent, *own, *dump
    yield "estimator", "join", *agent, *new, *dump, "--join-token-file", str(token)
    yield (
        *("federation", "bridge", "--shadow", "--insecure", "--endpoint", "127.0.0.1:1"),
        *("--token-file", str(token), "--karmada-kubeconfig", str(kube)),
    )
    yield (
        *("fedctl", "--insecure", "--endpoint", "127.0.0.1:1"),
        *("--timeout", "1", "--token-file", str(token), "get", "clusters"),
    )
    yield (
        *("fedctl", "--insecure", "--endpoint", "127.0.0.1:1"),
        *("--timeout", "1", "login", "odd", "--token-file", str(token)),
    )


def passwords(odd: str) -> Iterator[tuple[str, ...]]:
    """The control plane, with the odd credential in the address of its database."""
    for url in (f"postgresql://u:{odd}@[wrong/x", f"postgresql://127.0.0.1:port/x?password={odd}"):
        yield "federation", "migrate", "--database-url", url
        yield "federation", "serve", "--insecure", "--database-url", url


async def said(command: tuple[str, ...], folder: Path) -> str:
    """All output of a program, which ends by itself or is ended once it tries again."""
    program = f"from federation.entry import {command[0]}; {command[0]}()"
    home = {"HOME": str(folder), "FEDCTL_CONFIG": str(folder / "contexts.yaml")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *command[1:]),
        cwd=ROOT,
        env={**os.environ, **home, "ESTIMATOR_LOG_LEVEL": "debug", "GRPC_VERBOSITY": "info"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    output = b""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := await process.stdout.readline():
                output += line
                if b"again in" in line:
                    # It goes on trying for ever.
                    process.terminate()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode(errors="replace")


@pytest.mark.parametrize("odd", [REFUSED[0], TAKEN[0]], ids=["lines", "end"])
async def test_no_program_shows_a_credential(
    server: KubeApiServer, tmp_path: Path, odd: str
) -> None:
    with_odd = await asyncio.to_thread(list, commands(server, tmp_path, odd))
    shown = {command: await said(command, tmp_path) for command in with_odd}
    for command in passwords(odd):
        output = await said(command, tmp_path)
        assert "--database-url: must be" in output
        assert CORE not in output, command
    for command, output in shown.items():
        assert CORE not in output, command
        assert "Traceback" not in output, (command, output)
        if odd in REFUSED:
            assert RULE in output, (command, output)
            assert str(tmp_path) in output, (command, output)


@pytest.fixture
async def plane_that_asks(
    database_url: str, tmp_path: Path, server: KubeApiServer
) -> AsyncIterator[RunningControlPlane]:
    """A control plane that asks an API server whose tokens its callers have."""
    (tmp_path / "rules.yaml").write_text(ROLE_RULES)
    (tmp_path / "reviewer").write_text("nobody")
    flags = {
        "token_review": server.url,
        "token_review_audience": "fedsched",
        "token_review_token": str(tmp_path / "reviewer"),
        "role_rules": str(tmp_path / "rules.yaml"),
    }
    async with running_control_plane(database_url, tmp_path, **flags) as running:
        yield running


async def test_a_control_plane_shows_no_token_that_is_reviewed_or_asks_for_it(
    plane_that_asks: RunningControlPlane, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for number, odd in enumerate((*REFUSED, *TAKEN)):
        (tmp_path / "reviewer").write_bytes(odd.encode())
        # In the form of a JWT, as service accounts have them: each is reviewed once.
        caller = plane_that_asks.caller(f"{number}{CORE}.{CORE}.s")
        refusal = await refused(caller.ask("ListClusters"))
        assert refusal.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)
        assert CORE not in repr(refusal), ascii(odd)
        if odd in REFUSED:
            assert RULE in refusal.message, (ascii(odd), refusal)
    assert CORE not in caplog.text
