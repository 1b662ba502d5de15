"""Orders of the control plane: the nodes that an agent chooses, keeps free, and lets go of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from estimator.agent.answers import REPLIES_TOGETHER
from estimator.cluster.holds import EXPIRY_SECONDS
from federation.model.errors import InvalidRequest
from federation.v1.agents_pb2 import (
    BindingInterest,
    PlaceReply,
    PlaceRequest,
    PlaceRequests,
    Report,
    SoughtShape,
)
from federation.v1.resource_pb2 import ObjectReference
from lab.kubeapi.documents import node, pod
from lab.kubeapi.resources import Document
from lab.patience import until
from tests.agent.agents import Member, counts, ended, joined, running_agent, share

WEB = "shop/web"
LATER_SECONDS = 10.0
# What is promised by plan is followed where somebody places by claims.
PLACER: Any = {"ports": ("extender_listen",)}


def nodes(reply: PlaceReply) -> dict[str, int]:
    return {each.node: each.replicas for each in reply.nodes}


def owned(name: str, on: str = "", cpu: str = "1", owner: str = "web") -> Document:
    """A pod of a stateful set."""
    document = pod(name, on=on, cpu=cpu)
    document["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "controller": True}
    ]
    return document


def sought(
    planned: int | None,
    cpu: int = 1,
    owner: str = "web",
    *,
    promised: int | None = None,
    decision: str = "d",
) -> BindingInterest:
    """A binding whose pods have so many cores; ``planned`` of them are promised by plan."""
    shape = SoughtShape(request={"cpu": 1000 * cpu}, decisions=[decision], promised=promised)
    if planned is not None:
        shape.planned.CopyFrom(share(planned, str(cpu)))
    reference = ObjectReference(
        api_version="apps/v1", kind="StatefulSet", namespace="shop", name=owner
    )
    return BindingInterest(binding=f"shop/{owner}", owner=reference, shapes=[shape])


def named(name: str, cpu: str = "4", **labels: str) -> Document:
    """A node whose label says its name."""
    return node(name, cpu=cpu, labels={"name": name, **labels})


def cordoned(name: str) -> Document:
    document = named(name)
    document["spec"]["unschedulable"] = True
    return document


async def shows(member: Member, bound: int, waiting: int = 0, *, used: int) -> Report:
    """A report of so many pods of the binding, and so many cores that are used."""

    def holds(report: Report) -> bool:
        cores = report.allocated.get("cpu", 0) // 1000
        return (*counts(report).get(WEB, (0, 0))[:2], cores) == (bound, waiting, used)

    return await member.report(holds)


async def used(member: Member, *names: str) -> dict[str, int]:
    """Cores that pods and planned claims have on nodes of four."""
    shapes = [share(1, node_selector={"name": name}).replica_requirements for name in names or "ab"]
    reply = await member.estimate(shapes=shapes)
    return {name: 4 - free for name, free in zip(names or "ab", reply.replicas, strict=True)}


async def free(member: Member) -> dict[str, int]:
    """Cores beside all claims, as an order gets them."""
    reply = await member.place("probe/probe", share(100))
    await member.place("probe/probe", share(0))
    return nodes(reply)


async def test_the_fullest_node_is_filled_first_and_room_is_given_once(tmp_path: Path) -> None:
    async with joined(tmp_path, node("a"), node("b"), pod("p", on="b", cpu="1")) as member:
        reply = await member.place(WEB, share(4))
        assert (nodes(reply), reply.unplaced) == ({"a": 1, "b": 3}, 0)
        assert reply.strategy == "MostAllocated"
        reply = await member.place("shop/api", share(4))
        assert (nodes(reply), reply.unplaced) == ({"a": 3}, 1)
        assert reply.message == "1 of 4 replicas found no node among 2: 2 short of cpu"
        # Placed anew, a binding gives back what it held.
        assert nodes(await member.place(WEB, share(2))) == {"a": 1, "b": 1}
        assert await free(member) == {"b": 2}
        await member.place(WEB, share(0))
        assert await free(member) == {"a": 1, "b": 3}
        member.clock.now += EXPIRY_SECONDS
        assert await free(member) == {"a": 4, "b": 3}


async def test_an_order_says_its_scores_and_what_ruled_nodes_out(tmp_path: Path) -> None:
    async with joined(tmp_path) as member:
        reply = await member.place(WEB, share(2))
        assert (reply.unplaced, reply.message) == (
            2,
            "2 of 2 replicas found no node: the cluster has no nodes",
        )
        member.put(named("a"), named("b"), named("c"))
        await member.report(lambda report: report.total_nodes == 3)
        reply = await member.place(WEB, share(2, "2", node_selector={"name": "a"}))
        # cpu 2000 of 4000 is 50; memory 200 MiB of 8 GiB is 2: on average 26.
        assert [each.score for each in reply.nodes] == [26]
        reply = await member.place(WEB, share(11, "400m", node_selector={"name": "b"}))
        assert nodes(reply) == {"b": 10}
        assert reply.message == (
            "1 of 11 replicas found no node among 3: "
            "2 ruled out by selector, affinity or taints, 1 short of cpu, 1 short of pods"
        )
        shares = [
            share(3, component=name, node_selector={"name": "a"}) for name in ("jobs", "tasks")
        ]
        reply = await member.place("shop/flink", *shares)
        assert [(each.component, each.replicas) for each in reply.nodes] == [
            ("jobs", 3),
            ("tasks", 1),
        ]
        assert reply.message.startswith("2 of 3 replicas of tasks found no node")


async def test_pods_take_over_the_claims_of_their_own_binding_alone(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a"), named("b")) as member:
        await member.place(WEB, share(3, node_selector={"name": "a"}))
        foreign = pod("foreign", on="a", cpu="1")
        foreign["metadata"]["namespace"] = "kube-system"
        steps = [
            (owned("p", "a"), {"a": 1, "b": 4}),
            # Wherever it is; another namespace's, and of another size, does not.
            (owned("q", "b"), {"a": 2, "b": 3}),
            (owned("r", "b", cpu="2"), {"a": 2, "b": 1}),
            (foreign, {"a": 1, "b": 1}),
        ]
        for document, left in steps:
            member.put(document)
            await until(lambda: free(member), lambda found, left=left: found == left)


async def test_orders_are_answered_one_by_one_and_together(tmp_path: Path) -> None:
    def order(number: int, cpu: str = "1m") -> PlaceRequest:
        shares = [share(2, cpu)]
        return PlaceRequest(request_id=str(number), binding=f"shop/{number}", shares=shares)

    async with joined(tmp_path, node("a")) as member:
        line = member.line
        await line.send(place_request=order(0, "many"))
        reply = (await line.receive_next("place_reply")).place_reply
        assert (reply.request_id, reply.unplaced) == ("0", 2)
        assert "shares[0].replicaRequirements.resourceRequest[cpu]" in reply.message
        orders = [order(number) for number in range(REPLIES_TOGETHER + 1)]
        orders[1] = order(1, "many")
        await line.send(place_requests=PlaceRequests(requests=orders))
        replies = [*(await line.receive_next("place_replies")).place_replies.replies]
        replies.append((await line.receive_next("place_reply")).place_reply)
        assert [each.request_id for each in replies] == [each.request_id for each in orders]
        assert [each.unplaced for each in replies[:7]] == [0, 2, 0, 0, 0, 0, 2]


async def test_without_a_placer_nothing_is_claimed_by_plan(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a")) as member:
        reply = await member.place(WEB, share(2), planned=True)
        assert (reply.claimed, reply.unplaced) == (False, 0)
        assert reply.message == "nobody here follows claims"
        await member.tell(sought(2))
        await shows(member, 0, used=0)


async def test_claims_by_plan_are_capacity_in_use_and_count_as_bound(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a"), named("b"), **PLACER) as member:
        await member.tell(sought(3))
        await shows(member, 3, used=3)
        assert sum((await used(member)).values()) == 3
        # A pod that waits stands for a claim; others do not, and are told as waiting.
        member.put(owned("p"), pod("foreign", cpu="1"))
        report = await member.report(lambda report: bool(report.allocating))
        assert (counts(report)[WEB], report.allocating["cpu"]) == ((3, 0, 0), 1000)
        member.remove(pod("foreign"))
        (node_of_claims,) = (name for name, cores in (await used(member)).items() if cores)
        other = {"a": "b", "b": "a"}[node_of_claims]
        for document, left in (
            (owned("p", node_of_claims), {node_of_claims: 3, other: 0}),
            (owned("q", other), {node_of_claims: 2, other: 1}),
            # A sidecar was injected: its request is not the promise's, and it stands for it.
            (owned("r", node_of_claims, cpu="2"), {node_of_claims: 3, other: 1}),
        ):
            member.put(document)
            await until(lambda: used(member), lambda found, left=left: found == left)
            await shows(member, 3, used=sum(left.values()))
        # Who goes leaves room for the one that follows.
        member.remove(owned("q"))
        await shows(member, 3, used=4)


async def test_a_planned_order_is_claimed_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a"), **PLACER) as member:
        for replicas, is_claimed, cores in ((3, True, 3), (5, False, 3), (4, True, 4)):
            reply = await member.place(WEB, share(replicas), planned=True)
            assert reply.claimed is is_claimed
            assert (reply.unplaced, "short of cpu" in reply.message) == (not is_claimed,) * 2
            assert await used(member, "a") == {"a": cores}
        # An order without a plan ends what was planned.
        await member.tell(sought(4))
        await member.place(WEB, share(2))
        await shows(member, 0, used=0)
        # What is bound needs no claim.
        member.put(owned("p", "a"))
        await shows(member, 1, used=1)
        reply = await member.place(WEB, share(4), planned=True)
        assert (reply.claimed, nodes(reply)) == (True, {"a": 4})
        await shows(member, 4, used=4)


async def test_claims_by_plan_follow_what_is_promised(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a"), **PLACER) as member:
        await member.place(WEB, share(2), planned=True)
        # The control plane does not know of the decision yet, then it does.
        for planned, expiry, cores in ((None, 0, 2), (2, 0, 2), (2, EXPIRY_SECONDS, 2), (0, 0, 0)):
            await member.tell(sought(planned))
            member.clock.now += expiry
            assert await free(member) == {"a": 4 - cores}
            await shows(member, cores, used=cores)
        for interests in ((sought(4),), (sought(1),), (sought(3),)):
            await member.tell(*interests)
            cores = interests[0].shapes[0].planned.replicas
            await shows(member, cores, used=cores)
        for ending in (
            {"removed": (WEB,)},
            {"whole": True},
        ):
            await member.tell(sought(3))
            await shows(member, 3, used=3)
            await member.tell(**ending)
            await shows(member, 0, used=0)
        # What nobody promised in the end expires.
        await member.place(WEB, share(2), planned=True)
        await shows(member, 2, used=2)
        member.clock.now += EXPIRY_SECONDS
        assert await free(member) == {"a": 4}
        await shows(member, 0, used=0)


async def test_an_agent_that_starts_anew_claims_again_what_was_promised(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a"), named("b"), **PLACER) as member:
        member.put(owned("p", "a"), owned("q"))
        await member.tell(sought(4), whole=True)
        await shows(member, 4, used=4)


async def test_claims_move_to_other_nodes_or_are_lost(tmp_path: Path) -> None:
    """Room goes by pods that ask nobody, and by nodes that are cordoned."""
    foreign = pod("foreign", on="a", cpu="2")
    async with joined(tmp_path, named("a"), **PLACER) as member:
        await member.tell(sought(3))
        member.put(foreign)
        (lost,) = (await shows(member, 2, used=4)).lost_plans
        assert (lost.binding, lost.decision) == (WEB, "d")
        assert lost.reason == "1 of 1 replicas found no node among 1: 1 short of cpu"
        member.put(cordoned("a"))
        await member.report(lambda report: not report.graded_nodes and not report.echoes)
        member.put(named("a"))
        member.remove(foreign)
        assert not (await shows(member, 3, used=3)).lost_plans
        member.put(foreign)
        await shows(member, 2, used=4)
        member.put(named("b"))
        assert not (await shows(member, 3, used=5)).lost_plans
        assert await used(member) == {"a": 4, "b": 1}
        member.put(cordoned("a"))
        await shows(member, 3, used=3)
        assert (await used(member, "b"))["b"] == 3


async def test_a_promise_that_is_careful_now_leaves_its_claims_to_its_pods(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a"), **PLACER) as member:
        await member.tell(sought(3))
        member.put(pod("foreign", on="a", cpu="2"))
        assert (await shows(member, 2, used=4)).lost_plans
        report = await member.tell(sought(None))
        assert (report.allocated["cpu"], len(report.lost_plans)) == (2000, 0)
        # Nobody else is placed there for a while, or until it ends.
        assert await free(member) == {}
        member.clock.now += EXPIRY_SECONDS - 1
        assert await free(member) == {}
        member.clock.now += 1
        assert await free(member) == {"a": 2}
        for _ in range(2):
            await member.tell(sought(2))
            await member.tell(sought(None))
            assert await free(member) == {}
            await member.tell(removed=(WEB,))
            assert await free(member) == {"a": 2}


@pytest.mark.parametrize("follower", [{}, PLACER], ids=["no placer", "an extender"])
@pytest.mark.parametrize(
    ("ending", "is_over"),
    [
        (sought(None, promised=0), True),
        (None, True),
        (sought(None, promised=4), False),
        # An older control plane does not say; another decision than that of the claims.
        (sought(None), False),
        (sought(None, promised=0, decision="d0"), False),
    ],
)
async def test_claims_end_with_the_last_promise(
    tmp_path: Path, ending: BindingInterest | None, *, is_over: bool, follower: Any
) -> None:
    async with joined(tmp_path, named("a"), **follower) as member:
        assert not (await member.place(WEB, share(4), decision="d")).unplaced
        await (member.tell(ending) if ending else member.tell(removed=(WEB,)))
        assert await free(member) == ({"a": 4} if is_over else {})


async def test_planned_claims_end_with_the_last_promise(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a"), **PLACER) as member:
        for careful in (False, True):
            assert (await member.place(WEB, share(4), planned=True, decision="d")).claimed
            await member.tell(sought(4, promised=4))
            await shows(member, 4, used=4)
            if careful:
                await member.tell(sought(None, promised=4))
                assert await free(member) == {}
            await member.tell(sought(None, promised=0))
            assert await free(member) == {"a": 4}
        # Also before it was ever told what its order is worth.
        assert (await member.place(WEB, share(4), planned=True)).claimed
        await member.tell(removed=(WEB,))
        assert await free(member) == {"a": 4}


async def crowd(member: Member) -> None:
    """Claim two of three free cores of b, and then three of four of a."""
    for binding, cores, name in ((WEB, "2", "b"), ("shop/db", "3", "a")):
        reply = await member.place(binding, share(1, cores), planned=True)
        assert (reply.claimed, nodes(reply)) == (True, {name: 1})


CROWD = (named("a"), named("b"), pod("foreign", on="b", cpu="1"))


async def test_claims_of_others_move_where_that_makes_room(tmp_path: Path) -> None:
    async with joined(tmp_path, *CROWD, **PLACER) as member:
        await crowd(member)
        # Two at once find none.
        assert not (await member.place("shop/cache", share(2, "2"), planned=True)).claimed
        assert await used(member) == {"a": 3, "b": 3}
        member.clock.now += LATER_SECONDS
        reply = await member.place("shop/cache", share(1, "2"), planned=True)
        assert (reply.claimed, reply.message, nodes(reply)) == (True, "", {"a": 1})
        assert await used(member) == {"a": 4, "b": 4}
        # All of it is provisional: what moved for as long as before.
        member.clock.now += EXPIRY_SECONDS - LATER_SECONDS
        assert await free(member) == {"a": 2, "b": 3}
        member.clock.now += LATER_SECONDS
        assert await free(member) == {"a": 4, "b": 3}


async def test_claims_move_for_what_the_control_plane_tells_of(tmp_path: Path) -> None:
    """As after a restart, when nodes are chosen in another order than before."""
    async with joined(tmp_path, *CROWD, **PLACER) as member:
        await crowd(member)
        report = await member.tell(sought(1, 2, "cache"))
        assert (counts(report)["shop/cache"], len(report.lost_plans)) == ((1, 0, 0), 0)
        assert await used(member) == {"a": 4, "b": 4}
        # What is promised stays when the others expire.
        member.clock.now += EXPIRY_SECONDS
        assert await free(member) == {"a": 2, "b": 3}


async def test_claims_do_not_move_for_what_was_lost_before(tmp_path: Path) -> None:
    """It is tried every second, and careful soon."""
    another = pod("another", on="a", cpu="1")
    async with joined(tmp_path, *CROWD, **PLACER) as member:
        await crowd(member)
        member.put(another)
        await shows(member, 1, used=7)
        report = await member.tell(sought(1, 2, "cache"))
        assert [each.binding for each in report.lost_plans] == ["shop/cache"]
        member.remove(another)
        await shows(member, 1, used=6)
        assert [each.binding for each in (await member.report()).lost_plans] == ["shop/cache"]
        member.remove(pod("foreign"))
        assert not (await shows(member, 1, used=7)).lost_plans
        assert await used(member) == {"a": 3, "b": 4}


async def test_claims_move_for_those_that_fewer_nodes_suit(tmp_path: Path) -> None:
    async with joined(tmp_path, named("a", zone="here"), named("b"), **PLACER) as member:
        reply = await member.place("shop/db", share(1, "3"), planned=True)
        assert nodes(reply) == {"a": 1}
        reply = await member.place(WEB, share(1, "2", node_selector={"zone": "here"}), planned=True)
        assert (reply.claimed, nodes(reply)) == (True, {"a": 1})
        assert await used(member) == {"a": 2, "b": 3}


@pytest.mark.parametrize(
    ("memory", "strategy", "moved"),
    [("5Gi", "BalancedAllocation", True), ("4Gi", "MostAllocated", False)],
)
async def test_claims_move_to_nodes_that_they_even_out_only_where_scores_find_no_room(
    tmp_path: Path, memory: str, strategy: str, *, moved: bool
) -> None:
    """By most allocated all cores of the node with much memory are taken, whatever the order."""
    large, many = named("large"), named("many", cpu="8")
    large["status"]["allocatable"]["memory"] = "16Gi"
    many["status"]["allocatable"]["memory"] = "4Gi"
    async with joined(tmp_path, large, many, **PLACER) as member:
        reply = await member.place(WEB, share(1, "4", memory="2Gi"), planned=True)
        assert (reply.claimed, nodes(reply)) == (True, {"large": 1})
        reply = await member.place("shop/cache", share(1, "1", memory=memory), planned=True)
        assert (reply.claimed, reply.unplaced, reply.message) == (True, 0, "")
        assert (reply.strategy, nodes(reply)) == (strategy, {"large" if moved else "many": 1})
        assert await used(member, "large") == {"large": 1 if moved else 4}


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
LEAST_ALLOCATED = "[{name: NodeResourcesFit, args: {scoringStrategy: {type: LeastAllocated}}}]"


def configuration(path: Path, *names: str) -> str:
    """The file of profiles that spread pods, by their names."""
    profiles = [f"- {{schedulerName: {name}, pluginConfig: {LEAST_ALLOCATED}}}\n" for name in names]
    path.write_text(HEAD + "".join(profiles), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("names", "flags", "node_and_strategy"),
    [
        (("only",), {}, ("a", "only")),
        (("default-scheduler", "fedsched-binpack"), {}, ("a", "fedsched-binpack")),
        # Profiles of others are an extender's: what the agent places, it packs.
        (("default-scheduler", "packing"), PLACER, ("b", "MostAllocated")),
    ],
)
async def test_nodes_are_chosen_by_the_agents_own_profile(
    tmp_path: Path, names: tuple[str, ...], flags: Any, node_and_strategy: tuple[str, str]
) -> None:
    flags = {**flags, "scoring_config": configuration(tmp_path / "scheduler.yaml", *names)}
    async with joined(tmp_path, node("a"), node("b"), pod("p", on="b"), **flags) as member:
        reply = await member.place(WEB, share(1))
        assert ([*nodes(reply)], reply.strategy) == ([node_and_strategy[0]], node_and_strategy[1])


async def test_profiles_of_others_are_refused_where_there_is_no_extender(tmp_path: Path) -> None:
    path = configuration(tmp_path / "scheduler.yaml", "default-scheduler", "packing")
    flags = {"endpoint": ("127.0.0.1:1",), "insecure": "true", "scoring_config": path}
    async with running_agent(tmp_path, **flags) as agent:
        with pytest.raises(InvalidRequest, match="schedulerName"):
            await ended(agent)
