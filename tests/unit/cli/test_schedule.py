"""``fedctl schedule`` and ``explain`` against a control plane: previews, commits, traces."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.cli.decisions import print_nodes, print_trace
from federation.v1.scheduling_pb2 import Decision, NodePlacement, PlacedReplicas, Trace
from lab.control_planes import RunningControlPlane, report
from tests.unit.cli.calling import SPEC, answered, binding, run, shown, written

# Who waits for no node is answered at once.
AT_ONCE = ("--node-timeout", "0")


@pytest.fixture
def file(tmp_path: Path) -> str:
    return written(tmp_path)


async def test_a_preview_is_shown_and_committed_and_an_explanation_is_whole(
    running: RunningControlPlane, file: str
) -> None:
    async with (
        running.connected("m1", report=report(nodes=2)),
        running.connected("m2", report=report(nodes=1)),
    ):
        text = await shown(running, "schedule", "-f", file, "--preview", "-o", "wide")
        assert "not stored" in text
        assert "How it was decided" in text
        (preview,) = await answered(running, "schedule", "-f", file, "--preview")
        assert (await run(running, "explain", "shop/web")).exit_code == 1
        token = preview["previewToken"]
        (committed,) = await answered(running, "schedule", "--commit", token, *AT_ONCE)
        assert committed["decision"]["clusters"] == preview["decision"]["clusters"]
        explained = await answered(running, "explain", "shop/web")
        assert explained["id"] == committed["decision"]["id"]
        facts = {fact["name"]: fact["value"] for fact in explained["trace"]["facts"]}
        assert facts["trigger"] == "the binding is new"
        assert (facts["wanted"], facts["available"]) == ("5", "12")
        first, second = explained["trace"]["clusters"]
        assert (first["name"], first["availableReplicas"], first["replicas"]) == ("m1", 8, 3)
        assert (first["source"], first["reportSequence"]) == ("pools", 1)
        assert first["reportAgeSeconds"] >= 0
        assert first["scores"] == {"AvailableReplicas": 100, "ClusterLocality": 0, "Packing": 62}
        assert (second["quota"], second["weight"], second["tier"]) == (1.667, 4, 0)
        # A name as long as an id is a name, and a binding may have no decision.
        await running.sql("UPDATE binding SET decision_id = NULL")
        refused = await run(running, "explain", "shop/web")
        assert refused.exit_code == 1
        assert "error: There is no decision about binding 'shop/web'" in refused.stderr
        name = "a-cluster-scoped-binding-of-36-lettr"
        assert len(name) == 36
        unknown = await run(running, "explain", name)
        assert f"There is no binding {name!r}" in unknown.stderr
        refused = await run(running, "schedule", "--commit", "nonsense")
        assert (refused.exit_code, refused.stderr) == (
            1,
            "error: The preview token is unknown or has expired: preview again.\n",
        )


async def test_files_are_placed_together_or_not_at_all(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    def several(*replicas: int) -> str:
        made = [binding(f"w{number}", replicas=count) for number, count in enumerate(replicas)]
        return written(tmp_path, *made)

    async with running.connected("m1", report=report(nodes=2)):
        file = several(3, 3, 3)
        refused = await run(running, "schedule", "-f", file, "--atomic")
        assert refused.exit_code == 3, refused.output
        assert refused.stdout.count("items[2] (shop/w2) of the same atomic batch") == 2
        assert refused.stdout.count("not stored") == 3
        results = await answered(running, "schedule", "-f", several(3, 5), "--atomic")
        assert [each["decision"]["outcome"] for each in results] == ["SCHEDULED"] * 2
        many = await run(running, "schedule", "-f", several(*[1] * 1001), "--atomic")
        assert "items: must be 1 to 1000" in many.output


async def test_who_lost_replicas_to_whom_is_explained(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    async def scheduled(name: str, replicas: int, **spec: object) -> Any:
        file = written(tmp_path, binding(name, replicas=replicas, **spec))
        return (await answered(running, "schedule", "-f", file, *AT_ONCE))[0]

    async with running.connected("m1", report=report(nodes=2)):
        low = {"schedulePriority": {"priority": -1}}
        await scheduled("kept", 3, preemptible=False, **low)
        await scheduled("low", 5, **low)
        urgent = await scheduled("urgent", 4, preemptionPolicy="PreemptLowerPriority")
        assert urgent["decision"]["outcome"] == "SCHEDULED"
        explained = await shown(running, "explain", "shop/urgent")
        assert "shop/low: 5 in m1, priority -1" in explained
        assert "preempted by shop/urgent: 5 in m1" in await shown(running, "explain", "shop/low")
        more = await scheduled("more", 4, preemptionPolicy="PreemptLowerPriority")
        assert "nothing of lower priority makes room" in more["decision"]["reason"]


async def test_how_much_of_a_partial_placement_was_asked_for_is_explained(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    partial = {"placement": {**SPEC["placement"], "partial": True}, "replicas": 9}
    async with running.connected("m1", report=report(nodes=2)):
        file = written(tmp_path, binding(**partial, minAvailable=8))
        (placed,) = await answered(running, "schedule", "-f", file, *AT_ONCE)
        assert placed["decision"]["outcome"] == "PARTIAL"
        facts = (await answered(running, "explain", "shop/web"))["trace"]["facts"]
        assert {"name": "minAvailable", "value": "8"} in facts
        file = written(tmp_path, binding(**partial, minAvailable=10))
        refused = await run(running, "schedule", "-f", file)
        assert refused.exit_code == 1
        assert "minAvailable: must be from 1 to replicas, which is 9" in refused.output


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--atomic", "-f", "x.yaml", "--preview"), "--atomic does not go with them"),
        (("--atomic", "--commit", "x"), "--atomic does not go with them"),
        ((), "give files with -f, or tokens of previews with --commit"),
        (("-f", "x.yaml", "--commit", "t"), "give files with -f, or tokens"),
        (("--preview", "--commit", "t"), "choose one"),
        (("-f", "x.yaml", "--idempotency-key", ""), "--idempotency-key: must not be empty"),
        (("-f", "x.yaml", "--idempotency-key", " "), "--idempotency-key: must not be empty"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], what: str, file: str) -> None:
    result = CliRunner().invoke(
        fedctl, ["schedule", *[file if each == "x.yaml" else each for each in arguments]]
    )
    assert result.exit_code == 2
    assert what in result.output


async def test_what_has_no_effect_and_what_cannot_be_judged_is_told(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    more: dict[str, Any] = {
        "schedulePriority": {"priority": 7},
        "preemptionPolicy": "PreemptLowerPriority",
        "failover": {},
        "suspension": {"dispatching": True},
    }
    disk = {"nodeClaim": {"nodeSelector": {"disk": "ssd"}}}
    picky = binding("picky", replicaRequirements=SPEC["replicaRequirements"] | disk)
    said = "the cluster's pools do not tell nodes apart by disk"
    async with running.connected("m1", report=report()):
        decided = await run(running, "schedule", "-f", written(tmp_path, binding(**more)), *AT_ONCE)
        assert "warning: accepted, but nothing here reads spec.failover" in decided.stderr
        assert decided.stdout.count("Warning:") == 1
        assert "nothing here reads spec.suspension.dispatching" in decided.stdout
        many = written(tmp_path, binding(**more, replicas=99))
        (preview,) = await answered(running, "schedule", "-f", many, "--preview")
        assert [each.split()[0] for each in preview["decision"]["warnings"]] == ["accepted,"]
        assert "nothing of lower priority makes room" in preview["decision"]["reason"]
        decided = await run(running, "schedule", "-f", written(tmp_path, picky), *AT_ONCE)
        assert f"1 cluster has no estimate and counts as full: {said} (1)" in decided.stdout
        assert f"selected; {said}" in await shown(running, "explain", "shop/picky")


def test_nodes_and_affinity_groups_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [PlacedReplicas(node="n1", component="jm", replicas=1), PlacedReplicas(node="n2")]
    placement = NodePlacement(cluster="m1", nodes=nodes, unplaced=3, message="no room")
    print_nodes(Decision(node_placements=[placement]))
    table = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert table[1] == ["CLUSTER", "COMPONENT", "NODE", "REPLICAS", "SCORE", "STRATEGY"]
    assert table[2][:4] == ["m1", "jm", "n1", "1"]
    assert table[3][:4] == ["m1", "-", "n2", "0"]
    assert table[4] == ["m1", "-", "-", "3", "-", "no", "room"]
    # Groups are listed where several were tried.
    print_trace(Trace(attempts=["SCHEDULED"]))
    assert "Tried" not in capsys.readouterr().out
    print_trace(Trace(attempts=["near NO_FIT (no room)", "far SCHEDULED"]))
    tried = capsys.readouterr().out
    assert "Tried:  near NO_FIT (no room)" in tried
    assert "Tried:  far SCHEDULED" in tried


async def test_what_has_no_place_ends_with_3_where_that_is_asked_for(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    nowhere = {"clusterAffinity": {"clusterNames": ["nosuch"]}}
    rows: list[tuple[dict[str, Any], str, int]] = [
        ({}, "SCHEDULED", 0),
        ({"placement": nowhere}, "NO_FIT", 3),
        ({"replicas": 10_000}, "UNSCHEDULABLE", 3),
    ]
    async with running.connected("m1", report=report(nodes=2)):
        for spec, outcome, code in rows:
            asked = ["schedule", "-f", written(tmp_path, binding(**spec)), "--preview"]
            told = await run(running, *asked, "--exit-code")
            assert (told.exit_code, outcome in told.stdout) == (code, True), told.output
            assert (await run(running, *asked)).exit_code == 0
            # There is nothing to commit where no cluster fits.
            assert ("--commit" in told.stdout) == (outcome != "NO_FIT")


async def test_what_is_not_kept_ends_with_3_where_it_has_no_place(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    async with running.connected("m1", report=report(nodes=2)):
        file = written(tmp_path, binding("huge", replicas=10_000))
        for options, code in (("--no-queue", 3), ("--atomic", 3), ("--queue", 0)):
            result = await run(running, "schedule", "-f", file, options, *AT_ONCE)
            assert (result.exit_code, "UNSCHEDULABLE" in result.stdout) == (code, True)
        refused = await run(running, "schedule", "-f", file, "--no-wait")
        assert (refused.exit_code, "--no-queue now" in refused.stderr) == (2, True)
        refused = await run(running, "schedule", "-f", file, "--wait", "--no-queue")
        assert "--wait is for what is kept" in refused.stderr


async def test_scheduling_waits_until_all_is_placed(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    async with running.connected("m1", report=report(nodes=2)):
        await shown(running, "schedule", "-f", written(tmp_path, binding("first")), *AT_ONCE)
        late = written(tmp_path, binding("late", replicas=6))
        arguments = ("schedule", "-f", late, "--wait", *AT_ONCE)
        missed = await run(running, *arguments, "--timeout", "2s")
        assert (missed.exit_code, missed.stderr) == (
            1,
            "error: shop/late: not placed within 2 s (--timeout)\n",
        )
        waiting = asyncio.create_task(run(running, *arguments))
        await running.ask("DeleteBinding", namespace="shop", name="first")
        placed = await waiting
        assert (placed.exit_code, placed.stdout.splitlines()[-1]) == (0, "binding/shop/late placed")


async def test_what_a_template_asks_for_and_nobody_judges_is_in_the_answer(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    spread = [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    pod = {"topologySpreadConstraints": spread, "containers": [{"name": "a"}]}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"replicas": 2, "template": {"spec": pod}},
    }
    policy = {
        "kind": "PropagationPolicy",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}],
            "placement": SPEC["placement"],
        },
    }
    memory = {"resourceRequest": {"cpu": 1, "memory": "2048m"}}
    file = written(tmp_path, workload, policy, binding("fraction", replicaRequirements=memory))
    unjudged = (
        "not judged: topologySpreadConstraints (zone); "
        "pods may stay pending where replicas are placed"
    )
    async with running.connected("m1", report=report(nodes=2)):
        for options in (("--preview",), ("--atomic", *AT_ONCE), ("--no-queue", *AT_ONCE)):
            arguments = ("schedule", "-f", file, *options)
            answers = await answered(running, *arguments)
            warnings = {each["decision"]["name"]: each["decision"]["warnings"] for each in answers}
            assert warnings["web-deployment"] == [unjudged], options
            assert len(warnings["fraction"]) == 1, options
            assert "[memory]: 2048m is a fraction" in warnings["fraction"][0]
        text = await shown(running, "schedule", "-f", file, "--no-queue", *AT_ONCE)
        assert " ".join(text.split()).count(unjudged) == 1
        assert "Warning" in text
