"""``fedctl schedule`` and ``explain`` against a control plane: previews, commits, traces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl
from federation.cli.decisions import print_nodes, print_trace
from federation.v1.scheduling_pb2 import Decision, NodePlacement, PlacedReplicas, Trace
from lab.control_planes import RunningControlPlane, report, running_control_plane
from lab.databases import connect

BINDING = {
    "kind": "ResourceBinding",
    "metadata": {"namespace": "shop", "name": "web"},
    "spec": {
        "resource": {"uid": "u1"},
        "replicas": 5,
        "replicaRequirements": {"resourceRequest": {"cpu": 1}},
        "placement": {
            "replicaScheduling": {
                "replicaSchedulingType": "Divided",
                "weightPreference": {"dynamicWeight": "AvailableReplicas"},
            }
        },
    },
}


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as found:
        yield found


async def run(running: RunningControlPlane, *arguments: str) -> Result:
    plane = running.plane
    connecting = [
        "--insecure",
        "--endpoint",
        str(plane.endpoint),
        "--token-file",
        str(plane.admin_token_file),
    ]
    return await asyncio.to_thread(CliRunner().invoke, fedctl, [*connecting, *arguments])


async def answered(running: RunningControlPlane, *arguments: str) -> Any:
    result = await run(running, *arguments, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "binding.yaml"
    path.write_text(yaml.safe_dump(BINDING), encoding="utf-8")
    return str(path)


async def test_a_preview_is_shown_and_committed(running: RunningControlPlane, file: str) -> None:
    async with (
        running.connected("m1", report=report(nodes=2)),
        running.connected("m2", report=report(nodes=1)),
    ):
        shown = await run(running, "schedule", "-f", file, "--preview", "-o", "wide")
        assert shown.exit_code == 0, shown.output
        assert "not stored" in shown.stdout
        assert "How it was decided" in shown.stdout
        (preview,) = await answered(running, "schedule", "-f", file, "--preview")
        assert (await run(running, "explain", "shop/web")).exit_code == 1
        token = preview["previewToken"]
        options = ("--commit", token, "--node-timeout", "0")
        (committed,) = await answered(running, "schedule", *options)
        assert committed["decision"]["clusters"] == preview["decision"]["clusters"]
        explained = await answered(running, "explain", "shop/web")
        assert explained["id"] == committed["decision"]["id"]


async def test_files_are_placed_together_or_not_at_all(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    def written(*replicas: int) -> str:
        made: list[Any] = [
            BINDING
            | {
                "metadata": {"namespace": "shop", "name": f"w{number}"},
                "spec": BINDING["spec"] | {"replicas": count},
            }
            for number, count in enumerate(replicas)
        ]
        path = tmp_path / f"{len(replicas)}.yaml"
        path.write_text(yaml.safe_dump_all(made), encoding="utf-8")
        return str(path)

    async with running.connected("m1", report=report(nodes=2)):
        file = written(3, 3, 3)
        refused = await run(running, "schedule", "-f", file, "--atomic", "--exit-code")
        assert refused.exit_code == 3, refused.output
        assert refused.stdout.count("items[2] (shop/w2) of the same atomic batch") == 2
        assert refused.stdout.count("not stored") == 3
        assert (await run(running, "schedule", "-f", file, "--atomic")).exit_code == 0
        results = await answered(running, "schedule", "-f", written(3, 5), "--atomic")
        assert [each["decision"]["outcome"] for each in results] == ["SCHEDULED"] * 2
        many = written(*[1] * 1001)
        assert (
            "items: must be 1 to 1000"
            in (await run(running, "schedule", "-f", many, "--atomic")).output
        )


async def test_who_lost_replicas_to_whom_is_explained(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    spec: Any = BINDING["spec"]
    path = tmp_path / "urgent.yaml"

    async def scheduled(name: str, replicas: int, **more: object) -> Any:
        metadata = {"namespace": "shop", "name": name}
        asked = BINDING | {"metadata": metadata, "spec": spec | {"replicas": replicas} | more}
        path.write_text(yaml.safe_dump(asked), encoding="utf-8")
        return (await answered(running, "schedule", "-f", str(path), "--node-timeout", "0"))[0]

    async with running.connected("m1", report=report(nodes=2)):
        low = {"schedulePriority": {"priority": -1}}
        await scheduled("kept", 3, preemptible=False, **low)
        await scheduled("low", 5, **low)
        urgent = await scheduled("urgent", 4, preemptionPolicy="PreemptLowerPriority")
        assert urgent["decision"]["outcome"] == "SCHEDULED"
        explained = await run(running, "explain", "shop/urgent")
        assert "shop/low: 5 in m1, priority -1" in explained.stdout
        lost = await run(running, "explain", "shop/low")
        assert "preempted by shop/urgent: 5 in m1" in lost.stdout
        more = await scheduled("more", 4, preemptionPolicy="PreemptLowerPriority")
        assert "nothing of lower priority makes room" in more["decision"]["reason"]


async def test_how_much_of_a_partial_placement_was_asked_for_is_explained(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    spec: Any = BINDING["spec"]
    partial = {"placement": spec["placement"] | {"partial": True}}
    path = tmp_path / "partial.yaml"
    asked = BINDING | {"spec": spec | partial | {"replicas": 9, "minAvailable": 8}}
    path.write_text(yaml.safe_dump(asked), encoding="utf-8")
    async with running.connected("m1", report=report(nodes=2)):
        placed = await answered(running, "schedule", "-f", str(path), "--node-timeout", "0")
        assert placed[0]["decision"]["outcome"] == "PARTIAL"
        facts = (await answered(running, "explain", "shop/web"))["trace"]["facts"]
        assert {"name": "minAvailable", "value": "8"} in facts
        path.write_text(
            yaml.safe_dump(asked | {"spec": asked["spec"] | {"minAvailable": 10}}), encoding="utf-8"
        )
        refused = await run(running, "schedule", "-f", str(path))
        assert refused.exit_code == 1
        assert "minAvailable: must be from 1 to replicas, which is 9" in refused.output


@pytest.mark.parametrize("other", [("--preview",), ("--commit", "x")])
def test_previews_are_of_one_binding_each(other: tuple[str, ...], file: str) -> None:
    files = () if "--commit" in other else ("-f", file)
    result = CliRunner().invoke(fedctl, ["schedule", "--atomic", *files, *other])
    assert result.exit_code == 2
    assert "--atomic does not go with them" in result.output


async def test_an_explanation_is_whole(running: RunningControlPlane, file: str) -> None:
    async with (
        running.connected("m1", report=report(nodes=2)),
        running.connected("m2", report=report(nodes=1)),
    ):
        await answered(running, "schedule", "-f", file, "--node-timeout", "0")
        trace = (await answered(running, "explain", "shop/web"))["trace"]
        facts = {fact["name"]: fact["value"] for fact in trace["facts"]}
        assert facts["trigger"] == "the binding is new"
        assert (facts["wanted"], facts["available"]) == ("5", "12")
        first, second = trace["clusters"]
        assert (first["name"], first["availableReplicas"], first["replicas"]) == ("m1", 8, 3)
        assert (first["source"], first["reportSequence"]) == ("pools", 1)
        assert first["reportAgeSeconds"] >= 0
        assert first["scores"] == {"AvailableReplicas": 100, "ClusterLocality": 0, "Packing": 62}
        assert (second["quota"], second["weight"], second["tier"]) == (1.667, 4, 0)


async def test_a_label_that_no_pool_carries_is_named(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    whole: dict[str, Any] = BINDING
    spec = whole["spec"]
    requirements = spec["replicaRequirements"] | {"nodeClaim": {"nodeSelector": {"disk": "ssd"}}}
    path = tmp_path / "picky.yaml"
    picky = whole | {"spec": spec | {"replicaRequirements": requirements}}
    path.write_text(yaml.safe_dump(picky), encoding="utf-8")
    said = "the cluster's pools do not tell nodes apart by disk"
    async with running.connected("m1", report=report()):
        decided = await run(running, "schedule", "-f", str(path))
        assert f"1 cluster has no estimate and counts as full: {said} (1)" in decided.stdout
        assert f"selected; {said}" in (await run(running, "explain", "shop/web")).stdout


async def test_what_has_no_effect_is_told(running: RunningControlPlane, tmp_path: Path) -> None:
    spec: dict[str, Any] = BINDING["spec"]  # type: ignore[assignment]  # it is an object
    more = {
        "schedulePriority": {"priority": 7},
        "preemptionPolicy": "PreemptLowerPriority",
        "failover": {},
        "suspension": {"dispatching": True},
    }
    path = tmp_path / "more.yaml"
    path.write_text(yaml.safe_dump(BINDING | {"spec": spec | more}), encoding="utf-8")
    async with running.connected("m1", report=report()):
        decided = await run(running, "schedule", "-f", str(path), "--node-timeout", "0")
        assert "warning: accepted, but nothing here reads spec.failover" in decided.stderr
        assert decided.stdout.count("Warning:") == 1
        assert "nothing here reads spec.suspension.dispatching" in decided.stdout
        many = BINDING | {"spec": spec | more | {"replicas": 99}}
        path.write_text(yaml.safe_dump(many), encoding="utf-8")
        (preview,) = await answered(running, "schedule", "-f", str(path), "--preview")
        assert [each.split()[0] for each in preview["decision"]["warnings"]] == ["accepted,"]
        assert "nothing of lower priority makes room" in preview["decision"]["reason"]


def test_nodes_are_shown_with_the_component_they_are_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nodes = [PlacedReplicas(node="n1", component="jm", replicas=1), PlacedReplicas(node="n2")]
    placement = NodePlacement(cluster="m1", nodes=nodes, unplaced=3, message="no room")
    print_nodes(Decision(node_placements=[placement]))
    table = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert table[1] == ["CLUSTER", "COMPONENT", "NODE", "REPLICAS", "SCORE", "STRATEGY"]
    assert table[2][:4] == ["m1", "jm", "n1", "1"]
    assert table[3][:4] == ["m1", "-", "n2", "0"]
    assert table[4] == ["m1", "-", "-", "3", "-", "no", "room"]


def test_affinity_groups_are_listed_where_several_were_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_trace(Trace(attempts=["SCHEDULED"]))
    assert "Tried" not in capsys.readouterr().out
    print_trace(Trace(attempts=["near NO_FIT (no room)", "far SCHEDULED"]))
    shown = capsys.readouterr().out
    assert "Tried:  near NO_FIT (no room)" in shown
    assert "Tried:  far SCHEDULED" in shown


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((), "give files with -f, or tokens of previews with --commit"),
        (("-f", "x", "--commit", "t"), "give files with -f, or tokens"),
        (("--preview", "--commit", "t"), "choose one"),
    ],
)
def test_files_or_tokens(arguments: tuple[str, ...], what: str) -> None:
    result = CliRunner().invoke(fedctl, ["schedule", *arguments])
    assert result.exit_code == 2
    assert what in result.stderr


async def test_a_token_that_is_none_is_refused(running: RunningControlPlane) -> None:
    result = await run(running, "schedule", "--commit", "nonsense")
    assert result.exit_code == 1
    assert result.stderr == ("error: The preview token is unknown or has expired: preview again.\n")


async def test_what_has_no_place_ends_with_3_where_that_is_asked_for(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    whole: dict[str, Any] = BINDING
    spec = whole["spec"]
    placements = {
        "fits": spec["placement"],
        "nowhere": {"clusterAffinity": {"clusterNames": ["nosuch"]}},
    }
    for name, placement in placements.items():
        document = whole | {"spec": spec | {"placement": placement}}
        (tmp_path / name).write_text(yaml.safe_dump(document), encoding="utf-8")
    big = whole | {"spec": spec | {"replicas": 10_000}}
    (tmp_path / "big").write_text(yaml.safe_dump(big), encoding="utf-8")
    expected = {"fits": ("SCHEDULED", 0), "nowhere": ("NO_FIT", 3), "big": ("UNSCHEDULABLE", 3)}
    async with running.connected("m1", report=report(nodes=2)):
        for name, (outcome, code) in expected.items():
            asked = ["schedule", "-f", str(tmp_path / name), "--preview"]
            told = await run(running, *asked, "--exit-code")
            assert (told.exit_code, outcome in told.stdout) == (code, True), told.output
            assert (await run(running, *asked)).exit_code == 0
            # There is nothing to commit where no cluster fits.
            assert ("--commit" in told.stdout) == (outcome != "NO_FIT")


@pytest.mark.parametrize("key", ["", " "])
def test_an_empty_idempotency_key_is_none(key: str, file: str) -> None:
    result = CliRunner().invoke(fedctl, ["schedule", "-f", file, "--idempotency-key", key])
    assert result.exit_code == 2
    assert "--idempotency-key: must not be empty" in result.stderr


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
            "placement": BINDING["spec"]["placement"],  # type: ignore[index]  # a plain document
        },
    }
    fraction = {**BINDING, "metadata": {"namespace": "shop", "name": "fraction"}}
    fraction["spec"] = {
        **BINDING["spec"],  # type: ignore[dict-item]  # a plain document
        "replicaRequirements": {"resourceRequest": {"cpu": 1, "memory": "2048m"}},
    }
    path = tmp_path / "workload.yaml"
    path.write_text(yaml.safe_dump_all([workload, policy, fraction]), encoding="utf-8")
    unjudged = (
        "not judged: topologySpreadConstraints (zone); "
        "pods may stay pending where replicas are placed"
    )
    async with running.connected("m1", report=report(nodes=2)):
        for option in ("--preview", "--atomic", "--no-wait"):
            arguments = ("schedule", "-f", str(path), option)
            answers = await answered(running, *arguments)
            warnings = {each["decision"]["name"]: each["decision"]["warnings"] for each in answers}
            assert warnings["web-deployment"] == [unjudged], option
            assert len(warnings["fraction"]) == 1, option
            assert "[memory]: 2048m is a fraction" in warnings["fraction"][0]
        shown = await run(running, "schedule", "-f", str(path), "--no-wait")
        assert " ".join(shown.stdout.split()).count(unjudged) == 1
        assert "Warning" in shown.stdout


async def test_a_binding_without_a_decision_is_explained_by_name(
    running: RunningControlPlane, file: str, database_url: str
) -> None:
    async with running.connected("m1", report=report(nodes=2)):
        assert (await run(running, "schedule", "-f", file)).exit_code == 0
        database = await connect(database_url)
        try:
            await database.execute("UPDATE binding SET decision_id = NULL")
        finally:
            await database.close()
        refused = await run(running, "explain", "shop/web")
        assert refused.exit_code == 1
        assert "error: There is no decision about binding 'shop/web'" in refused.stderr
        # A name as long as an id is a name.
        name = "a-cluster-scoped-binding-of-36-lettr"
        assert len(name) == 36
        unknown = await run(running, "explain", name)
        assert f"There is no binding {name!r}" in unknown.stderr
