"""The shipped roles allow what the agent asks for, and nothing else.

Whole agents ask an API server that enforces them; what they asked for is compared with what they
may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.agent_streams import exchange
from lab.binders import pending, told, until
from lab.kubeapi.access import Rule, User, rules_of
from lab.kubeapi.documents import namespace, node, pod
from lab.kubeapi.faults import Answer, Asked, First
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from tests.agent.agents import running_agent
from tests.unit.deploy.manifests import AGENT_FOLDER, documents

AGENT = "system:serviceaccount:fedsched:fedsched-agent"
Access = frozenset[tuple[str, str, str]]


def rules(*names: str, within: Path = AGENT_FOLDER) -> tuple[Rule, ...]:
    found = documents(*names, within=within)
    return rules_of(each for each in found if each["kind"].endswith("Role"))


def allowed(*names: str, within: Path = AGENT_FOLDER) -> Access:
    """API group, resource and verb of everything the rules allow."""
    return frozenset(
        (group, resource, verb)
        for rule in rules(*names, within=within)
        for group in rule.groups
        for resource in rule.resources
        for verb in rule.verbs
    )


def asked(server: KubeApiServer) -> Access:
    """The same of everything that was asked for, but what is open to all."""
    return frozenset(
        (each.group, f"{each.resource}/{each.subresource}".rstrip("/"), each.verb)
        for each in server.requests
        if not each.resource.startswith("/")
    )


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    cluster = Cluster(version=100)
    for name in ("kube-system", "fedsched", "shop"):
        cluster.put(namespace(name))
    cluster.put(node("n1"))
    cluster.put(pod("a", on="n1"))
    cluster.put(pod("b"))
    for name in ("fedsched-agent", "another"):
        metadata = {"namespace": "fedsched", "name": name, "uid": f"uid-{name}"}
        cluster.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    with KubeApiServer(cluster) as running:
        yield running


def kubeconfig(server: KubeApiServer, tmp_path: Path, *names: str) -> Path:
    """Access as the service account, with the roles of these files."""
    server.tokens = {"agent": User(name=AGENT, rules=rules(*names))}
    return server.kubeconfig(tmp_path / "kubeconfig", "agent")


async def test_the_agent_asks_for_exactly_what_it_may(
    server: KubeApiServer, tmp_path: Path
) -> None:
    """Streamed lists and pages, watches, its Secret."""
    flags: dict[str, Any] = {
        "kubeconfig": str(kubeconfig(server, tmp_path, "rbac.yaml")),
        "credential_secret": "fedsched/fedsched-agent",
        "insecure": "true",
        "join_token": "token",
    }
    async with exchange() as plane:
        for is_streamed in (True, False):
            if not is_streamed:
                server.faults.add(
                    Answer(status=422, body=b"{}"),
                    applies=lambda each: "sendInitialEvents" in each.query,
                )
            async with running_agent(tmp_path, endpoint=(plane.endpoint,), **flags):
                line = await plane.next_line()
                await asyncio.to_thread(server.wait_for_watches, "nodes", "pods", "resourcequotas")
                line.end()
    assert asked(server) == allowed("rbac.yaml")


async def test_the_binder_asks_for_exactly_what_it_may_beside(
    server: KubeApiServer, tmp_path: Path
) -> None:
    """A binding whose answer is lost, an event and a condition, a lease made and renewed."""

    def bind_it() -> None:
        target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
        server.writer.bind("shop", "p", target)

    server.faults.add(
        Answer(status=422, body=b"{}"), applies=lambda each: "sendInitialEvents" in each.query
    )
    names = ("rbac.yaml", "binder/rbac.yaml")
    config = str(kubeconfig(server, tmp_path, *names))
    is_binding = {"times": 1, "resource": "pods", "verb": "create"}
    server.faults.add(First(act=bind_it), **is_binding)  # type: ignore[arg-type]  # of two kinds
    server.cluster.put(pending("large", cpu="900"))
    async with running_agent(tmp_path, kubeconfig=config, binder="true"):
        server.cluster.put(pending("p"))
        await until(server, lambda: any("assigned" in each for each in told(server, "p")))
        await until(server, lambda: any("short of cpu" in each for each in told(server, "large")))
        await until(server, lambda: asked(server) >= allowed("binder/rbac.yaml"))
    secrets = {each for each in allowed(*names) if each[1] == "secrets"}
    assert asked(server) == allowed(*names) - secrets


@pytest.mark.parametrize(
    "refused",
    [
        Asked(verb="get", resource="secrets", namespace="fedsched", name="another"),
        Asked(verb="list", resource="secrets", namespace="fedsched"),
        Asked(verb="get", resource="secrets", namespace="shop", name="fedsched-agent"),
        Asked(verb="get", resource="namespaces", namespace="shop", name="shop"),
        Asked(verb="create", resource="pods", subresource="binding", namespace="shop", name="a"),
        Asked(verb="delete", resource="pods", namespace="shop", name="a"),
        Asked(verb="patch", resource="nodes", name="n1"),
    ],
    ids=lambda asked: f"{asked.verb} {asked.resource}",
)
def test_the_agent_may_do_no_harm(refused: Asked) -> None:
    assert not User(name=AGENT, rules=rules("rbac.yaml")).may(refused)
