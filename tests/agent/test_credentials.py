"""Where an agent keeps its credential, and what it makes of one that is not its own."""

from __future__ import annotations

import base64
import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from federation.certificates import make_certificates
from federation.model.errors import PreconditionFailed
from lab.agent_streams import CREDENTIAL
from lab.kubeapi.access import Rule, User
from lab.kubeapi.resources import RESOURCES, Document
from lab.kubeapi.server import ADMIN_TOKEN
from lab.patience import until
from tests.agent.agents import START, ended, joining, running_agent

SECRETS = next(each for each in RESOURCES if each.plural == "secrets")
NAME = "fedsched-agent"
KEPT = {
    "cluster": "member1",
    "endpoints": ["127.0.0.1:1"],
    "credential": "id.secret",
    "expires_at": 2.0**33,
    "ca": "",
}
# Nobody answers there, and nothing is asked for.
AWAY: Any = {"endpoint": ("127.0.0.1:1",), "insecure": "true"}


def secret(name: str = NAME, **data: str) -> Document:
    metadata = {"name": name, "namespace": "fedsched", "uid": f"uid-{name}", "labels": {"app": "a"}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


async def test_a_file_is_its_owners_and_sessions_only_go_forward(tmp_path: Path) -> None:
    path = tmp_path / "state" / "credential"
    epochs = []
    for clock, flags in ((0.0, {}), (-900.0, {"join_token": None}), (1.0, {"join_token": None})):
        async with joining(tmp_path, credential_file=str(path), **flags) as member:
            # A clock that was set back begins no session anew.
            member.clock.now = START + clock
            epochs.append((await member.welcome()).epoch)
            assert member.line.metadata["authorization"] == f"Bearer {CREDENTIAL}"
            assert len(member.plane.joined) == ("join_token" not in flags)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert epochs[0] >= START * 1000
    assert epochs == sorted({*epochs})


@pytest.mark.parametrize(
    ("content", "flags", "said"),
    [
        (json.dumps({**KEPT, "cluster": "other"}), {}, "is for cluster 'other', not 'member1'"),
        ("not JSON", {}, "credential file .* cannot be read"),
        (b'{"cluster": "\xff"}', {}, "credential file .* cannot be read"),
        (None, {"ca_sha256": "0" * 64}, r"has the SHA-256 [0-9a-f]{64}, not 0000"),
    ],
)
async def test_a_credential_that_is_not_its_own_is_refused(
    tmp_path: Path, content: str | bytes | None, flags: Any, said: str
) -> None:
    path, report = tmp_path / "credential", tmp_path / "report.json"
    if content is None:
        files = make_certificates(tmp_path / "tls", ["127.0.0.1"], now=datetime.now(UTC))
        content = json.dumps({**KEPT, "ca": files.ca.read_text(encoding="ascii")})
        flags = {**flags, "ca_url": "http://127.0.0.1:1/ca.pem", "insecure": "false"}
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    report.write_text('{"nodeSummary": {}, "resourceSummary": {}}')
    source = {"report": str(report), "credential_file": str(path)}
    async with running_agent(tmp_path, **{**AWAY, **source, **flags}) as agent:
        with pytest.raises(PreconditionFailed, match=said):
            await ended(agent)


async def test_a_secret_of_the_cluster_is_kept_by_the_agents_own_role(tmp_path: Path) -> None:
    rules = [
        Rule(
            groups=frozenset({""}),
            resources=frozenset({"secrets"}),
            verbs=frozenset({"get", "update"}),
            names=frozenset({NAME}),
            namespace="fedsched",
        ),
        Rule(
            groups=frozenset({""}),
            resources=frozenset({"nodes", "pods", "resourcequotas", "namespaces"}),
            verbs=frozenset({"get", "list", "watch"}),
        ),
    ]
    flags = {"credential_secret": f"fedsched/{NAME}"}
    async with joining(tmp_path, secret(other="b3RoZXI="), secret("theirs"), **flags) as member:
        server = member.server
        await member.welcome()
        stored = server.cluster.get(SECRETS, "fedsched", NAME)
        assert stored is not None
        (key,) = stored["data"].keys() - {"other"}
        kept = json.loads(base64.b64decode(stored["data"][key]))
        assert (kept["credential"], kept["cluster"]) == (CREDENTIAL, "member1")
        assert stored["metadata"]["labels"] == {"app": "a"}
        server.tokens["agent"] = User(name="agent", rules=tuple(rules))
        config = str(server.kubeconfig(tmp_path / "agent", "agent"))
        garbage = base64.b64encode(b"not JSON").decode()
        for name, content, said in (
            (NAME, "!!!", f"secret fedsched/{NAME}"),
            (NAME, garbage, f"secret fedsched/{NAME}"),
            ("theirs", None, "needs to get and update it"),
        ):
            if content is not None:
                server.cluster.put(secret(**{key: content}))
            own = {"kubeconfig": config, "credential_secret": f"fedsched/{name}"}
            async with running_agent(tmp_path, **AWAY, **own) as agent:
                with pytest.raises(PreconditionFailed, match=said):
                    await ended(agent)
        own = {"kubeconfig": str(server.kubeconfig(tmp_path / "admin", ADMIN_TOKEN))}
        own |= {"credential_secret": "fedsched/none"}
        async with running_agent(tmp_path, **AWAY, **own) as agent:
            with pytest.raises(PreconditionFailed, match="kubectl create secret generic none"):
                await ended(agent)
        # An API server that is away may come back.
        server.cluster.put(secret(**{key: stored["data"][key]}))
        asked = len(server.requests)
        server.stop()
        own = {"kubeconfig": config, "credential_secret": f"fedsched/{NAME}"}
        async with running_agent(tmp_path, **AWAY, **own) as agent:
            server.start()

            async def requests() -> int:
                return len(server.requests)

            await until(requests, lambda count: count > asked)
            assert not agent.done()
