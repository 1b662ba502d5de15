"""Whatever happens in a cluster, an agent that saw it says what one says that starts anew."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from federation.v1.agents_pb2 import BindingInterest, Report, SoughtShape
from federation.v1.resource_pb2 import ObjectReference
from lab.kubeapi.documents import node, pod
from lab.kubeapi.resources import PODS, RESOURCES, Document
from tests.agent.agents import Member, joined

NODES = next(each for each in RESOURCES if each.plural == "nodes")
NODE_NAMES, POD_NAMES = "abc", [f"p{number}" for number in range(12)]
OWNERS = {
    "web": ("apps/v1", "StatefulSet"),
    "scan": ("batch/v1", "Job"),
    "api": ("apps/v1", "DaemonSet"),
}
GPU = "example.com/gpu"


def some_node(random: Random) -> Document:
    document = node(random.choice(NODE_NAMES), cpu=random.choice(["2", "4", "16"]))
    document["status"]["conditions"][0]["status"] = random.choice(["True", "True", "False"])
    document["spec"]["unschedulable"] = random.random() < 0.2
    return document


def some_pod(random: Random) -> Document:
    """A pod of any state, maybe on a node that is not there."""
    on = random.choice(["", "", *NODE_NAMES, "nowhere"])
    phase = random.choice(["Running", "Running", "Succeeded", "Failed", "Unknown"])
    document = pod(random.choice(POD_NAMES), on=on, phase=phase, cpu=random.choice(["1", "250m"]))
    if not on and random.random() < 0.3:
        document["spec"]["schedulingGates"] = [{"name": "g"}]
    if not on and random.random() < 0.3:
        document["status"]["nominatedNodeName"] = random.choice(NODE_NAMES)
    if random.random() < 0.3:
        document["spec"]["containers"][0]["resources"]["requests"][GPU] = "1"
    name = random.choice([*OWNERS, ""])
    if name:
        api_version, kind = OWNERS[name]
        reference = {"apiVersion": api_version, "kind": kind, "name": name, "controller": True}
        document["metadata"]["ownerReferences"] = [reference]
    if random.random() < 0.2:
        document["metadata"]["labels"] = {"fedsched.io/binding": "uid-web"}
    return document


def change(random: Random, member: Member) -> None:
    match random.randrange(6):
        case 0:
            member.put(some_node(random))
        case 1 if there := member.server.cluster.all(NODES):
            member.remove(random.choice(there))
        case 2 if there := member.server.cluster.all(PODS):
            member.remove(random.choice(there))
        case _:
            member.put(some_pod(random))


def interest(name: str, cpu: int) -> BindingInterest:
    api_version, kind = OWNERS[name]
    owner = ObjectReference(api_version=api_version, kind=kind, namespace="shop", name=name)
    shapes = [SoughtShape(request={"cpu": amount}, decisions=["d"]) for amount in (1000, cpu)]
    return BindingInterest(binding=f"shop/{name}", uid=f"uid-{name}", owner=owner, shapes=shapes)


def essence(report: Report) -> dict[str, Any]:
    """All that is counted, whatever the order."""
    pools = report.pools
    shapes = [tuple(sorted(each.request.items())) for each in report.echo_shapes]
    return {
        "amounts": [
            dict(each) for each in (report.allocatable, report.allocated, report.allocating)
        ],
        "nodes": (report.total_nodes, report.ready_nodes, report.graded_nodes),
        "grades": [each.count for each in report.grade_counts],
        "pools": [*pools.resources, *sorted(pools.counts), *sorted(pools.minimums)],
        "echoes": sorted(
            (each.binding, shapes[each.shape], each.bound, each.unbound, each.finished)
            for each in report.echoes
        ),
    }


@pytest.mark.parametrize("seed", range(4))
async def test_a_history_comes_to_what_a_new_agent_sees(tmp_path: Path, seed: int) -> None:
    random, sought = Random(seed), dict[str, BindingInterest]()
    (tmp_path / "old").mkdir()
    async with joined(tmp_path / "old") as old:
        for number in range(3):
            for _ in range(random.randrange(10, 60)):
                change(random, old)
            names = random.sample([*OWNERS], random.randrange(4))
            told = {name: interest(name, random.choice([250, 100])) for name in names}
            is_whole, removed = random.random() < 0.5, {random.choice([*OWNERS])} - {*told}
            sought = told if is_whole else {**sought, **told}
            sought = {name: each for name, each in sought.items() if name not in removed}
            await old.tell(
                *told.values(), whole=is_whole, removed=tuple(f"shop/{name}" for name in removed)
            )
            cluster, state = old.server.cluster, tmp_path / f"new-{number}"
            state.mkdir()
            async with joined(state, *cluster.all(NODES), *cluster.all(PODS)) as new:
                expected = essence(await new.tell(*sought.values(), whole=True))
            await old.report(lambda report, e=expected: essence(report) == e)  # type: ignore[misc]  # the loop's own
