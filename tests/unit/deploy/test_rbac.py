"""The shipped roles allow what the agent asks for, and nothing else.

The agent's own code asks an API server that enforces them; what it asked for is compared with
what they allow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from estimator.credential import SecretName
from estimator.estimation.capacity import NodeSet
from estimator.kube.incoming import read_incoming
from estimator.kube.secret import CredentialSecret
from estimator.kube.writing import KubeWrites
from estimator.lease import Lease
from estimator.live import LiveSource
from estimator.placing.incoming import PodEvent
from lab.kubeapi.access import Rule, User, rules_of
from lab.kubeapi.documents import namespace, node, pod
from lab.kubeapi.faults import Answer, Asked
from lab.kubeapi.resources import PODS
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster
from lab.patience import PATIENCE_SECONDS
from tests.unit.deploy.manifests import KUBERNETES, documents

AGENT = "system:serviceaccount:fedsched:fedsched-agent"
Access = frozenset[tuple[str, str, str]]


def rules(*names: str, within: Path = KUBERNETES) -> tuple[Rule, ...]:
    found = documents(*names, within=within)
    return rules_of(each for each in found if each["kind"].endswith("Role"))


def allowed(*names: str, within: Path = KUBERNETES) -> Access:
    """API group, resource and verb of everything the rules allow."""
    return frozenset(
        (group, resource, verb)
        for rule in rules(*names, within=within)
        for group in rule.groups
        for resource in rule.resources
        for verb in rule.verbs
    )


def asked(server: KubeApiServer) -> Access:
    """The same of everything that was asked for, /version aside, which is open to all."""
    return frozenset(
        (each.group, f"{each.resource}/{each.subresource}".rstrip("/"), each.verb)
        for each in server.requests
        if each.resource != "/version"
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


@asynccontextmanager
async def following(path: Path) -> AsyncIterator[LiveSource]:
    source = LiveSource(path, NodeSet.SCHEDULABLE, clock=lambda: 0.0, uniform=lambda _: 0.0)
    task = asyncio.create_task(source.follow())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await source.ready()
        yield source
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def run_agent(server: KubeApiServer, path: Path) -> None:
    """Everything the agent does: streamed lists and pages, watches, its Secret."""

    def is_watch_list(each: Asked) -> bool:
        return "sendInitialEvents" in each.query

    async with following(path):
        server.wait_for_watches("nodes", "pods", "resourcequotas")
    server.faults.add(Answer(status=422, body=b"{}"), applies=is_watch_list)
    async with following(path):
        server.wait_for_watches("nodes", "pods", "resourcequotas")
    store = CredentialSecret(SecretName(namespace="fedsched", name="fedsched-agent"), path)
    await asyncio.to_thread(store.write, b"credential")
    assert await asyncio.to_thread(store.read) == b"credential"


async def run_binder(server: KubeApiServer, path: Path) -> None:
    """Everything that is written beside: a binding, twice, an event, a lease made and renewed."""
    writes = KubeWrites(path, namespace="fedsched", clock=lambda: 1_800_000_000.0)
    stored = server.cluster.get(PODS, "shop", "b")
    assert stored is not None
    incoming = read_incoming(msgspec.json.encode(stored))
    for _ in range(2):
        await writes.bind(namespace="shop", name="b", uid=incoming.uid, node="n1")
    await writes.tell(PodEvent(pod=incoming, is_warning=True, reason="Unfit", message="no node"))
    await writes.write_lease(Lease(holder="one"))
    held = await writes.read_lease()
    assert held is not None
    await writes.write_lease(held)
    writes.close()


async def test_the_agent_asks_for_exactly_what_it_may(
    server: KubeApiServer, tmp_path: Path
) -> None:
    await run_agent(server, kubeconfig(server, tmp_path, "rbac.yaml"))
    assert asked(server) == allowed("rbac.yaml")


async def test_the_binder_asks_for_exactly_what_it_may(
    server: KubeApiServer, tmp_path: Path
) -> None:
    await run_binder(server, kubeconfig(server, tmp_path, "binder/rbac.yaml"))
    assert asked(server) == allowed("binder/rbac.yaml")


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
