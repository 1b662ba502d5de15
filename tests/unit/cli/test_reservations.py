"""``fedctl``: what is held is shown, released and prolonged; what changes is followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.control_planes import AgentStream, RunningControlPlane, report
from tests.unit.cli.calling import answered, binding, run, shown, written

SCHEDULE = ("schedule", "--node-timeout", "0", "-f")


@pytest.fixture
def file(tmp_path: Path) -> str:
    return written(tmp_path)


async def test_what_is_stuck_is_listed(
    running: RunningControlPlane, member1: AgentStream, file: str
) -> None:
    assert "Nothing is outstanding." in (await run(running, "get", "reservations")).output
    await shown(running, *SCHEDULE, file)
    assert "Nothing is stuck." in (await run(running, "get", "reservations", "--stuck")).output
    await member1.hear("place_request")
    # Of four nodes with 4 cores one is left.
    await member1.say(report=report(sequence=2, nodes=1))
    await member1.hear("ack")
    (row,) = await answered(running, "get", "reservations", "--stuck")
    assert (row["cluster"], row["binding"], row["stuck"]) == ("member1", "shop/web", 1)
    assert await answered(running, "get", "reservations", "--cluster", "other") == []
    table = await shown(running, "get", "reservations")
    assert table.splitlines()[1].split()[:5] == ["member1", "shop/web", "-", "5", "1"]


@pytest.mark.usefixtures("member1")
async def test_bindings_are_listed_with_what_of_them_is_placed(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    divided = {"replicaScheduling": {"replicaSchedulingType": "Divided"}}
    gone = {"clusterAffinity": {"clusterNames": ["gone"]}}
    parts = [{"name": name, "replicas": count} for name, count in (("ps", 1), ("worker", 2))]
    empty = {"replicas": 0, "replicaRequirements": {}}
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("all", {"replicas": 1}, "1/1"),
        ("config", {**empty, "placement": divided}, "yes"),
        ("lost", {**empty, "placement": gone}, "no"),
        ("none", {"placement": {**divided, **gone}}, "0/5"),
        ("sets", {**empty, "components": parts, "placement": divided}, "3/3"),
        ("twice", {"replicas": 1, "placement": {}}, "2/2"),
    ]
    async with running.connected("member2", report=report()):
        documents = [binding(name, **spec) for name, spec, _ in rows]
        await shown(running, *SCHEDULE, written(tmp_path, *documents))
        listed = await shown(running, "get", "bindings")
    placed = {row.split()[1]: row.split()[4] for row in listed.splitlines()[1:]}
    assert placed == {name: text for name, _, text in rows}


@pytest.mark.usefixtures("member1")
async def test_what_is_promised_is_shown_and_released(
    running: RunningControlPlane, file: str
) -> None:
    text = await shown(running, *SCHEDULE, file, "--certificate", "strict")
    assert "strict" in text
    assert " 1/1" in text
    described = await shown(running, "describe", "binding", "shop/web")
    assert "OUTSTANDING" in described
    assert "strict" in described
    (held,) = (await answered(running, "describe", "binding", "shop/web"))["reservations"]
    assert (held["cluster"], held["replicas"], held["outstanding"]) == ("member1", 5, 5)
    # A cluster that is not there cannot be released.
    for name in ("nobody", "No_Name"):
        refused = await run(running, "release", "shop/web", "--cluster", name)
        assert refused.exit_code == 1
        assert "clusters[0]" in refused.stderr
    (gone,) = await answered(running, "release", "shop/web", "--cluster", "member1")
    assert gone == held
    assert "none" in await shown(running, "describe", "binding", "shop/web")
    refused = await run(running, "release", "shop/web")
    assert refused.exit_code == 1
    assert "holds nothing" in refused.stderr


@pytest.mark.usefixtures("member1")
async def test_who_leaves_out_the_kind_is_told_the_whole_name_and_components_are_described(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    one = {"replicaRequirements": {"resourceRequest": {"cpu": 1}}}
    parts = [{"name": "jm", "replicas": 1, **one}, {"name": "tm", "replicas": 2, **one}]
    etl = binding("etl", components=parts, placement={}, replicas=0, replicaRequirements={})
    await shown(running, *SCHEDULE, written(tmp_path, etl, binding("api-deployment")))
    described = await shown(running, "describe", "binding", "shop/etl")
    assert "jm=1, tm=2" in described
    assert "Replicas:" not in described
    # A binding that is gone may have a history.
    for verb, code in (
        *((("explain",), 1), (("describe", "binding"), 1), (("history",), 0)),
        *((("release",), 1), (("delete", "binding"), 1)),
    ):
        refused = await run(running, *verb, "shop/api")
        assert "no binding 'shop/api'. Is it 'shop/api-deployment'?" in refused.stderr, verb
        assert refused.exit_code == code, verb


@pytest.mark.usefixtures("member1")
async def test_a_lease_is_prolonged(running: RunningControlPlane, file: str) -> None:
    refused = await run(running, "renew", "shop/web")
    assert "There is no binding" in refused.stderr
    await shown(running, *SCHEDULE, file)
    refused = await run(running, "renew", "shop/web", "--lease-seconds", "60")
    assert "has no lease" in refused.stderr
    await shown(running, *SCHEDULE, file, "--lease-seconds", "60")
    before = (await answered(running, "describe", "binding", "shop/web"))["leaseExpireTime"]
    assert "holds until" in await shown(running, "renew", "shop/web", "--lease-seconds", "3600")
    after = (await answered(running, "describe", "binding", "shop/web"))["leaseExpireTime"]
    assert after > before
    refused = await run(running, "renew", "shop/web", "--lease-seconds", "0")
    assert "leaseSeconds" in refused.stderr


@pytest.mark.usefixtures("member1")
async def test_a_key_decides_once(running: RunningControlPlane, file: str) -> None:
    once = (*SCHEDULE, file, "--idempotency-key", "k1")
    (first,) = await answered(running, *once)
    (again,) = await answered(running, *once)
    assert again["decision"]["id"] == first["decision"]["id"]
    refused = await run(running, *once, "--certificate", "strict")
    assert refused.exit_code == 1
    assert "another request" in refused.stderr
    assert (await run(running, *once, "--preview")).exit_code == 2
