"""What the agent writes, against an API server: what comes of refusals, and the lease's form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from estimator.kube.writing import KubeWrites
from estimator.lease import Lease
from estimator.placing.incoming import PodEvent
from federation.model.errors import (
    Conflict,
    Unavailable,
)
from lab.binders import cluster_of, pending
from lab.kubeapi.documents import node
from lab.kubeapi.faults import Answer
from lab.kubeapi.resources import LEASES, PODS
from lab.kubeapi.server import KubeApiServer
from tests.pods import incoming

NOW = 1_700_000_000.25


@pytest.fixture
def server() -> Iterator[KubeApiServer]:
    with KubeApiServer(cluster_of(node("a"), pending("p"))) as running:
        yield running


@pytest.fixture
async def writes(server: KubeApiServer, tmp_path: Path) -> AsyncIterator[KubeWrites]:
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    writes = KubeWrites(kubeconfig, namespace="fedsched", clock=lambda: NOW)
    yield writes
    writes.close()


def stored_version(server: KubeApiServer) -> str:
    version: str = server.cluster.all(LEASES)[0]["metadata"]["resourceVersion"]
    return version


async def bind(writes: KubeWrites, name: str = "p", uid: str = "uid-p", node: str = "a") -> None:
    await writes.bind(namespace="shop", name=name, uid=uid, node=node)


async def test_answers_that_cannot_be_read(server: KubeApiServer, writes: KubeWrites) -> None:
    server.faults.add(Answer(status=200, body=b'{"spec": {"holderIdentity": "\xff"}}'), times=1)
    with pytest.raises(Unavailable, match="cannot be read"):
        await writes.read_lease()
    await bind(writes)
    # Whether it was bound before cannot be read either: the first refusal stands.
    server.faults.add(Answer(status=200, body=b"<html>"), verb="get")
    with pytest.raises(Conflict):
        await bind(writes)


async def test_lease_is_written_only_over_what_was_read(
    server: KubeApiServer, writes: KubeWrites
) -> None:
    assert await writes.read_lease() is None
    lease = Lease(holder="one", acquired_at=NOW, renewed_at=NOW)
    await writes.write_lease(lease)
    with pytest.raises(Conflict):
        await writes.write_lease(lease)
    stored = server.cluster.all(LEASES)[0]["spec"]
    assert stored["renewTime"].startswith("2023-11-14T22:13:20.250000")

    whole_second = replace(lease, renewed_at=float(int(NOW)), version=stored_version(server))
    await writes.write_lease(whole_second)
    assert ".000000" in server.cluster.all(LEASES)[0]["spec"]["renewTime"]
    await writes.write_lease(replace(lease, version=stored_version(server)))

    found = await writes.read_lease()
    assert found is not None
    assert found == replace(lease, version=found.version)
    await writes.write_lease(replace(found, renewed_at=NOW + 1))
    with pytest.raises(Conflict):
        await writes.write_lease(found)

    given_back = await writes.read_lease()
    assert given_back is not None
    await writes.write_lease(replace(given_back, holder="", duration_seconds=1.0))
    assert "holderIdentity" not in server.cluster.all(LEASES)[0]["spec"]
    after = await writes.read_lease()
    assert after is not None
    assert after.holder == ""


async def test_new_words_do_not_move_the_time_since_when_a_pod_has_no_node(
    server: KubeApiServer, tmp_path: Path
) -> None:
    """Karmada asks who has been pending for a minute, while reasons change every few seconds."""
    now = NOW
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    writes = KubeWrites(kubeconfig, namespace="fedsched", clock=lambda: now)
    pod = incoming("p", namespace="shop", uid="uid-p")

    async def told(message: str) -> dict[str, str]:
        event = PodEvent(pod=pod, is_warning=True, reason="FailedScheduling", message=message)
        await writes.tell(event)
        condition: dict[str, str] = server.cluster.all(PODS)[0]["status"]["conditions"][0]
        return condition

    first = await told("0 of 1 nodes fit")
    now += 75
    second = await told("0 of 2 nodes fit")
    assert second == {**first, "message": "0 of 2 nodes fit"}
    await bind(writes)
    assert (await told("not bound after all"))["lastTransitionTime"] != first["lastTransitionTime"]
    writes.close()
