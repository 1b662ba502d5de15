"""``fedctl apply`` of all that files may hold, and ``edit``, against a control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.control_planes import RunningControlPlane, report
from tests.unit.cli.calling import answered, binding, run, shown, written

QUOTA: dict[str, Any] = {
    "kind": "Quota",
    "namespace": "shop",
    "replicas": 20,
    "resources": {"cpu": "16"},
}


async def test_clusters_quotas_and_workloads_of_one_file(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    async with running.connected("m1", report=report(nodes=2)):
        cluster = await answered(running, "get", "cluster", "m1")
        cluster["metadata"]["labels"] = {"tier": "gold"}
        file = written(tmp_path, QUOTA, binding(), cluster)
        names = ["cluster/m1", "quota/shop", "binding/shop/web"]
        would = (await shown(running, "apply", "-f", file, "--dry-run")).splitlines()
        assert would == [f"{name} configured (server dry run)" for name in names]
        assert (await run(running, "get", "binding", "shop/web")).exit_code == 1
        fields = await run(running, "diff", "-f", file, "-o", "jsonpath={[*].field}")
        assert (fields.exit_code, fields.stdout.splitlines()) == (
            3,
            ["metadata.labels.tier", "replicas", "resources.cpu", "binding", "replicas in m1"],
        )
        done = (await shown(running, "apply", "-f", file)).splitlines()
        assert done == [*(f"{name} configured" for name in names[:2]), done[2]]
        assert done[2] == "binding/shop/web configured: SCHEDULED m1=5"
        would = (await shown(running, "apply", "-f", file, "--dry-run=server")).splitlines()
        assert would == [f"{name} unchanged (server dry run)" for name in names]
        (quota,) = await answered(running, "get", "quotas")
        assert (quota["replicas"], quota["usedReplicas"]) == (20, 5)


async def test_nothing_is_sent_when_something_is_wrong(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    await running.enrolled("m1")
    wrong = {**QUOTA, "replicas": -1}, {**QUOTA, "namespace": "two words"}, {"kind": "Quota"}
    refused = await run(running, "apply", "-f", written(tmp_path, QUOTA, *wrong))
    assert refused.exit_code == 1
    for path in ("Quota/shop.replicas", "Quota/two words.namespace", "Quota/document 4.namespace"):
        assert path in refused.stderr
    assert await answered(running, "get", "quotas") == []
    empty = await run(running, "apply", "-f", written(tmp_path, None))
    assert (empty.exit_code, empty.stderr) == (1, "error: files: hold nothing\n")


def editor(folder: Path, *commands: str) -> str:
    """An editor that runs the next one of these sed commands each time."""
    script = folder / "editor"
    turns = "\n".join(f"{turn}) sed -i '{command}' $1;;" for turn, command in enumerate(commands))
    counted = f"n=$(cat {folder}/turn 2>/dev/null || echo 0); echo $((n + 1)) > {folder}/turn"
    script.write_text(f"#!/bin/sh\n{counted}\ncase $n in\n{turns}\nesac\n")
    script.chmod(0o700)
    return str(script)


async def test_a_cluster_is_edited(
    running: RunningControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.enrolled("m1")
    region = "s/^spec:.*/spec: {regionn: eu}/"
    monkeypatch.setenv("EDITOR", editor(tmp_path, region, "s/regionn/region/"))
    assert await shown(running, "edit", "cluster", "m1") == "cluster/m1 edited\n"
    cluster = await answered(running, "get", "cluster", "m1")
    assert cluster["spec"]["region"] == "eu"
    # Nothing is changed any more, and then the name is.
    assert await shown(running, "edit", "cluster", "m1") == "cluster/m1 not changed\n"
    (tmp_path / "turn").unlink()
    monkeypatch.setenv("EDITOR", editor(tmp_path, "s/name: m1/name: m2/"))
    refused = await run(running, "edit", "cluster", "m1")
    assert (refused.exit_code, "metadata.name" in refused.stderr) == (1, True)
