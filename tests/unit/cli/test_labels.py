"""``fedctl label`` and ``fedctl taint``, as kubectl has them for nodes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.cli.connection import Connection
from federation.model.errors import Conflict
from federation.v1 import resource_pb2
from lab.control_planes import RunningControlPlane
from tests.unit.cli.calling import answered, run, shown


async def test_labels_are_set_and_removed(running: RunningControlPlane) -> None:
    await running.enrolled("member1")
    await running.enrolled("member2")

    async def labels(name: str = "member1") -> dict[str, str]:
        cluster = await answered(running, "get", "cluster", name)
        return dict(cluster["metadata"].get("labels", {}))

    both = ("member1", "member2")
    done = await shown(running, "label", "cluster", *both, "tier=gold", "zone=a")
    assert done == "cluster/member1 labeled\ncluster/member2 labeled\n"
    assert await labels("member2") == {"tier": "gold", "zone": "a"}
    assert await shown(running, "label", "cluster/member1", "tier=gold") == (
        "cluster/member1 not changed\n"
    )
    refused = await run(running, "label", "cluster", "member1", "tier=silver")
    words = "cluster/member1 has the label tier=gold already: --overwrite gives it a new value"
    assert (refused.exit_code, refused.stderr) == (1, f"error: {words}\n")
    tried = await shown(
        *(running, "label", "cluster", "member1", "tier=silver", "--overwrite", "--dry-run")
    )
    assert tried == "cluster/member1 labeled (dry run)\n"
    assert await labels() == {"tier": "gold", "zone": "a"}
    changed = await answered(
        *(running, "label", "cluster", "member1", "tier=silver", "zone-", "--overwrite")
    )
    assert changed["metadata"]["labels"] == await labels() == {"tier": "silver"}
    gone = await run(running, "label", "cluster", "member1", "zone-")
    assert (gone.exit_code, gone.stdout) == (0, "cluster/member1 not changed\n")
    assert gone.stderr == "cluster/member1 has no label zone\n"
    assert await shown(running, "label", "clusters", "member1", "tier-") == (
        "cluster/member1 unlabeled\n"
    )
    assert await labels() == {}


async def test_taints_are_set_and_removed(running: RunningControlPlane) -> None:
    await running.enrolled("member1")

    async def taints() -> list[str]:
        cluster = await answered(running, "get", "cluster", "member1")
        return [
            f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in cluster["spec"].get("taints", [])
        ]

    taint = ("taint", "cluster", "member1")
    assert await shown(running, *taint, "upgrade=soon:NoSchedule", "spot:NoExecute") == (
        "cluster/member1 tainted\n"
    )
    assert await taints() == ["upgrade=soon:NoSchedule", "spot=:NoExecute"]
    refused = await run(running, *taint, "upgrade=now:NoSchedule")
    assert refused.exit_code == 1
    assert "has the taint upgrade=soon:NoSchedule already" in refused.stderr
    await shown(running, *taint, "upgrade=now:NoSchedule", "--overwrite")
    await shown(running, *taint, "upgrade=now:PreferNoSchedule")
    assert await shown(running, *taint, "upgrade:NoSchedule-") == "cluster/member1 untainted\n"
    assert await taints() == ["spot=:NoExecute", "upgrade=now:PreferNoSchedule"]
    assert await shown(running, *taint, "upgrade-", "spot-", "--dry-run") == (
        "cluster/member1 untainted (dry run)\n"
    )
    await shown(running, *taint, "upgrade-", "spot-")
    assert await taints() == []
    gone = await run(running, *taint, "spot-")
    assert (gone.exit_code, gone.stderr) == (1, "error: cluster/member1 has no taint spot\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("label cluster member1", 2, "give clusters and what changes"),
        ("label cluster tier=gold", 2, "give clusters and what changes"),
        ("label cluster member1 tier=gold tier-", 2, "tier is both set and removed"),
        ("label cluster member1 tier=a,b", 1, "labels[tier]"),
        ("label binding web tier=gold", 2, "There is no kind 'binding'. The kinds are cluster."),
        ("taint cluster member1 a=b", 2, "'a=b' is not KEY=VALUE:EFFECT"),
        ("taint cluster member1 a=b:Never", 1, "must be one of NoSchedule, "),
        ("taint cluster member1 a:Never-", 1, "must be one of NoSchedule, "),
        (
            *("taint cluster member1 fedsched.io/unreachable:NoExecute", 1),
            "is set by the control plane alone",
        ),
    ],
)
def test_what_is_wrong_is_told(arguments: str, code: int, words: str) -> None:
    result = CliRunner().invoke(fedctl, arguments.split())
    assert (result.exit_code, words in result.output) == (code, True), result.output


@pytest.mark.parametrize("conflicts", [1, 4, 5])
def test_a_cluster_that_others_change_is_read_again(
    conflicts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = resource_pb2.Cluster(metadata=resource_pb2.ObjectMeta(name="member1"))
    updates: list[resource_pb2.Cluster] = []

    async def get_cluster(_: str) -> resource_pb2.Cluster:
        stored.metadata.labels["by-others"] = str(len(updates))
        stored.metadata.resource_version = str(len(updates))
        return stored

    async def update_cluster(cluster: resource_pb2.Cluster) -> resource_pb2.Cluster:
        updates.append(cluster)
        if len(updates) <= conflicts:
            raise Conflict("it was changed")
        return cluster

    api: Any = SimpleNamespace(get_cluster=get_cluster, update_cluster=update_cluster)
    monkeypatch.setattr(Connection, "call", lambda _, method: asyncio.run(method(api)))
    result = CliRunner().invoke(fedctl, ["label", "cluster", "member1", "tier=gold"])
    if conflicts == 5:
        assert (result.exit_code, result.stderr) == (
            1,
            "error: cluster/member1 was changed by others 5 times: try again\n",
        )
        return
    assert (result.exit_code, result.stdout) == (0, "cluster/member1 labeled\n")
    newest = updates[-1].metadata
    assert (newest.resource_version, dict(newest.labels)) == (
        str(conflicts),
        {"tier": "gold", "by-others": str(conflicts)},
    )
