"""Plans over real sockets: real agents' clusters are drained, by echo; each command of the page.

The clusters hold pods of one Deployment everywhere, so that agents see replicas as soon as they
are promised there; where an eviction has ended an agent without those pods takes the other's place.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli import asking, plans
from federation.cli.__main__ import fedctl
from federation.v1 import rebalance_pb2
from federation.v1.rebalance_pb2_grpc import RebalanceStub
from federation.v1.resource_pb2 import (
    ObjectMeta,
    ObjectReference,
    Placement,
    ReplicaRequirements,
    ReplicaSchedulingStrategy,
    ResourceBinding,
    ResourceBindingSpec,
    TargetCluster,
)
from federation.v1.scheduling_pb2 import GetBindingRequest, ScheduleRequest
from lab.agents import (
    DUMPS,
    POLL_SECONDS,
    SECONDS,
    Process,
    cluster_where,
    estimator,
    flags,
    has_reported,
    join_token,
)
from lab.control_planes import RunningControlPlane, refused, running_control_plane

MEMBERS = ("member1", "member2", "member3")
COMMANDS = (
    "drain member1",
    "rebalance plan drain member2 --moves-at-once 5",
    "rebalance show 2",
    "rebalance approve 2",
    "rebalance watch 2",
    "rebalance list",
    "rebalance stop 2 --reason 'enough for today'",
    "rebalance plan failback",
    "rebalance plan failback member3",
    "rebalance plan balance",
    "rebalance plan balance --cluster-selector env=prod --tolerance 10",
    "rebalance plan consolidate --headroom 25",
    "rebalance plan consolidate --selector tier=batch member1 member2 member3",
    "rebalance plan unschedulable",
    "rebalance plan unschedulable --selector tier=batch member1",
)
REPLICAS = 6
MOST = 2**63 - 1
# What plans come to that find nothing to do: by kind.
WORDS = {
    "failback": r"^Moves: +0 of 0 replicas, in 0 steps$",
    "balance": r"^Evens out: +[0-9.]+ of [0-9.]+ \w+ above the level, in \d+ steps?$",
    "unschedulable": r"^Makes room: +for 0 of 0 replicas that have none, in 0 steps$",
    "consolidate": r"^Empties: +\d of \d clusters?, in \d+ steps?$",
}


def write_dumps(directory: Path) -> None:
    """The recorded clusters, each with the pods that member1 has of its Deployment, and without."""
    dumps = {name: json.loads((DUMPS / f"{name}.json").read_text()) for name in MEMBERS}
    pods = [
        each
        for each in dumps["member1"]["items"]
        if each["kind"] == "Pod" and each["metadata"]["name"].startswith("storefront-")
    ][:REPLICAS]
    for name, dump in dumps.items():
        kept = [each for each in dump["items"] if "storefront-" not in each["metadata"]["name"]]
        (directory / f"{name}-empty.json").write_text(json.dumps({**dump, "items": kept}))
        nodes = [each["metadata"]["name"] for each in kept if each["kind"] == "Node"]
        for pod, node in zip(copy.deepcopy(pods), nodes, strict=False):
            pod["spec"]["nodeName"] = node
            kept.append(pod)
        (directory / f"{name}.json").write_text(json.dumps({**dump, "items": kept}))


class Fleet:
    """A control plane and the agents of three clusters, in processes of their own."""

    def __init__(self, plane: RunningControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.stack = AsyncExitStack()
        self._agents: dict[str, Process] = {}

    async def start(self, name: str, dump: str) -> None:
        """It joins the first time."""
        arguments = ["run", *flags(self.plane, name, self.directory / "plane")]
        if name not in self._agents:
            arguments += ["--join-token", (await join_token(self.plane, name)).token]
        agent = estimator(*arguments, "--from", str(self.directory / f"{dump}.json"))
        self._agents[name] = await self.stack.enter_async_context(agent)

    async def take_away(self, name: str) -> None:
        """As a controller does, once the binding and its evictions name the cluster no more."""
        async with asyncio.timeout(SECONDS):
            while True:
                clusters, _, evictions = await where(self.plane)
                if name not in clusters and not evictions:
                    break
                await asyncio.sleep(POLL_SECONDS)
        await self._agents[name].stop()
        await self.start(name, f"{name}-empty")


@pytest.fixture
async def fleet(database_url: str, tmp_path: Path) -> AsyncIterator[Fleet]:
    write_dumps(tmp_path)
    async with running_control_plane(
        database_url, tmp_path / "plane", report_seconds="0.5"
    ) as made:
        started = Fleet(made, tmp_path)
        async with started.stack:
            for name in MEMBERS:
                await started.start(name, name)
            for name in MEMBERS:
                await cluster_where(made, name, has_reported)
            await deploy(made)
            yield started


async def deploy(plane: RunningControlPlane) -> None:
    """It runs in member1."""
    binding = ResourceBinding(
        metadata=ObjectMeta(namespace="shop", name="storefront"),
        spec=ResourceBindingSpec(
            resource=ObjectReference(
                api_version="apps/v1", kind="Deployment", namespace="shop", name="storefront"
            ),
            replicas=REPLICAS,
            replica_requirements=ReplicaRequirements(resource_request={"cpu": "350m"}),
            clusters=[TargetCluster(name="member1", replicas=REPLICAS)],
            placement=Placement(
                replica_scheduling=ReplicaSchedulingStrategy(
                    replica_scheduling_type="Divided", replica_division_preference="Aggregated"
                )
            ),
        ),
    )
    request = ScheduleRequest(binding=binding)
    await plane.admin.call(plane.admin.scheduling.Schedule, request)


async def where(plane: RunningControlPlane) -> tuple[set[str], int, int]:
    """Its clusters, its replicas there, and how many evictions it has."""
    request = GetBindingRequest(namespace="shop", name="storefront")
    spec = (await plane.admin.call(plane.admin.scheduling.GetBinding, request)).binding.spec
    replicas = sum(each.replicas for each in spec.clusters)
    return {each.name for each in spec.clusters}, replicas, len(spec.graceful_eviction_tasks)


async def say(
    plane: RunningControlPlane, *arguments: str, code: int = 0, answer: str | None = None
) -> str:
    token = str(plane.plane.admin_token_file)
    to = ("--insecure", "--endpoint", str(plane.plane.endpoint), "--token-file", token)
    said = await asyncio.to_thread(CliRunner().invoke, fedctl, [*to, *arguments], input=answer)
    assert said.exit_code == code, said.output
    return said.output


async def test_drains_empty_the_clusters_of_real_agents(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = fleet.plane
    first, *others = (shlex.split(each) for each in COMMANDS)
    assert (await where(plane))[0] == {"member1"}
    # There is no terminal to ask on.
    assert "say --yes" in await say(plane, *first, code=2)
    assert await say(plane, "rebalance", "list", "-o", "json") == "[]\n"
    # Who is asked and declines leaves no draft.
    with monkeypatch.context() as terminal:
        for module in (asking, plans):
            terminal.setattr(module, "check_may_ask", lambda **_: None)
        await say(plane, *first, code=1, answer="n\n")
    (declined,) = json.loads(await say(plane, "rebalance", "list", "-o", "json"))
    assert [declined] == json.loads(await say(plane, "get", "plans", "-o", "json"))
    named = await say(plane, "get", "plan", str(declined["id"]), "-o", "name")
    assert named == f"plan/{declined['id']}\n"
    assert (declined["state"], declined["reason"]) == ("stopped", "declined")
    assert (await where(plane))[0] == {"member1"}
    drained, _ = await asyncio.gather(say(plane, *first, "--yes"), fleet.take_away("member1"))
    assert re.search(r"^Moves: +6 of 6 replicas, in 1 step$", drained, flags=re.MULTILINE)
    assert re.search(r"^At best: +6 .*within 0 % of the best possible$", drained, re.MULTILINE)
    assert re.search(r"^1  done  shop/storefront  to ", drained, flags=re.MULTILINE)
    assert "done: 1 of 1 step is done" in drained
    clusters, replicas, evictions = await where(plane)
    assert (replicas, evictions) == (REPLICAS, 0)
    assert "member1" not in clusters
    # What is done has nothing left to be done.
    assert "0 of 0 replicas, in 0 steps" in await say(plane, *first, "--yes")
    (there,) = clusters
    plan_id = "0"
    for words in others:
        command = [each.replace("member2", there) for each in words]
        if command[1] not in ("plan", "list"):
            command[2] = plan_id
        if command[1] == "stop":
            made = await say(plane, "rebalance", "plan", "drain", "member1", "-o", "json")
            command[2] = plan_id = str(json.loads(made)["id"])
        if command[1] == "watch":
            await fleet.take_away(there)
        if "--cluster-selector" in command:
            assert "clusterSelector: no cluster" in await say(plane, *command, code=1)
            continue
        said = await say(plane, *command)
        if command[1] == "plan" and command[2] != "drain":
            assert re.search(WORDS[command[2]], said, re.MULTILINE)
        elif command[1] == "plan":
            plan_id = re.findall(r"^Plan: +(\d+)$", said, flags=re.MULTILINE)[0]
            assert re.search(rf"^ *1 +shop/storefront +{there}=6 .* pending ", said, re.MULTILINE)
    assert not {there, "member1"} & (await where(plane))[0]
    shown = await say(plane, "rebalance", "show", plan_id)
    assert re.search(r"^State: +stopped$", shown, flags=re.MULTILINE)
    assert re.search(r"^Why: +enough for today$", shown, flags=re.MULTILINE)
    await wrong_requests(plane)


async def wrong_requests(plane: RunningControlPlane) -> None:
    """Each is refused with its code, by field."""
    stub: Any = RebalanceStub(plane.channel)
    drain = rebalance_pb2.PLAN_KIND_DRAIN
    for request, violated in (
        (rebalance_pb2.CreatePlanRequest(clusters=["member1"]), {"kind"}),
        (rebalance_pb2.CreatePlanRequest(kind=drain), {"clusters"}),
        (
            rebalance_pb2.CreatePlanRequest(
                kind=drain, clusters=["x", "X!", "x"], moves_at_once=-1, max_moves=5001
            ),
            {"clusters[1]", "clusters[2]", "movesAtOnce", "maxMoves"},
        ),
        (rebalance_pb2.CreatePlanRequest(kind=drain, clusters=["x"]), {"clusters[0]"}),
        (
            rebalance_pb2.CreatePlanRequest(
                kind=drain,
                clusters=["member1"],
                cluster_selector={"env": "prod"},
                selector={"!": "x"},
                moves_per_cluster=1001,
                max_moved_percent=101,
                headroom_percent=20,
                tolerance_percent=101,
            ),
            {
                *("clusters", "selector[!]", "movesPerCluster", "maxMovedPercent"),
                *("headroomPercent", "tolerancePercent"),
            },
        ),
        (
            rebalance_pb2.CreatePlanRequest(
                kind=rebalance_pb2.PLAN_KIND_BALANCE, cluster_selector={"env": "nowhere"}
            ),
            {"clusterSelector"},
        ),
    ):
        told = await refused(plane.admin.call(stub.CreatePlan, request))
        assert (told.code.name, set(told.violations)) == ("INVALID_ARGUMENT", violated)
    for rpc in ("GetPlan", "ApprovePlan", "StopPlan"):
        for plan_id, code in (
            (0, "INVALID_ARGUMENT"),
            (-1, "INVALID_ARGUMENT"),
            (MOST, "NOT_FOUND"),
        ):
            request = getattr(rebalance_pb2, f"{rpc}Request")(id=plan_id)
            told = await refused(plane.admin.call(getattr(stub, rpc), request))
            assert told.code.name == code
    # The second one was carried out.
    ended = rebalance_pb2.StopPlanRequest(id=2, reason="too late")
    told = await refused(plane.admin.call(stub.StopPlan, ended))
    assert (told.code.name, told.reason) == ("FAILED_PRECONDITION", "ENDED")
    told = await refused(plane.admin.call(stub.ApprovePlan, rebalance_pb2.ApprovePlanRequest(id=2)))
    assert (told.code.name, told.reason) == ("FAILED_PRECONDITION", "NOT_A_DRAFT")
    page = rebalance_pb2.ListPlansRequest(page_token="bm9uZQ==")
    told = await refused(plane.admin.call(stub.ListPlans, page))
    assert (told.code.name, set(told.violations)) == ("INVALID_ARGUMENT", {"pageToken"})
