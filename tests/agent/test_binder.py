"""Whole binders on an API server: what gets bound where, what is left alone, and who does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from estimator.kube.lease import GIVE_UP_SECONDS, LEASE_SECONDS
from lab import patience
from lab.binders import NAMESPACE, cluster_of, in_gang, nodes_of, pending, told, until
from lab.kubeapi.access import User
from lab.kubeapi.documents import node, pod
from lab.kubeapi.faults import Answer, Drop, First, bad_gateway
from lab.kubeapi.resources import EVENTS, LEASES, PODS, Document
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from tests.agent.agents import Clock, joined, running_agent, share

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@contextmanager
def serving(*documents: Document) -> Iterator[KubeApiServer]:
    with KubeApiServer(cluster_of(*documents)) as server:
        yield server


@asynccontextmanager
async def running_binder(
    server: KubeApiServer, kubeconfig: Path, clock: Clock | None = None, user: str = ADMIN_TOKEN
) -> AsyncIterator[None]:
    """An agent that binds pods at this server, until the end of the block."""
    config = str(server.kubeconfig(kubeconfig, user))
    async with running_agent(kubeconfig.parent, clock, kubeconfig=config, binder="true"):
        yield


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    return tmp_path / "kubeconfig"


async def bound(server: KubeApiServer, *names: str) -> dict[str, str]:
    """Where these pods are, once all of them have a node."""
    await until(server, lambda: set(names) <= nodes_of(server).keys())
    return {name: nodes_of(server)[name] for name in names}


async def has_said(server: KubeApiServer, name: str, text: str) -> None:
    await until(server, lambda: any(text in message for message in told(server, name)))


async def test_pods_are_packed_and_told(kubeconfig: Path) -> None:
    with serving(node("a"), node("b"), pod("busy", on="b", cpu="1")) as server:
        async with running_binder(server, kubeconfig):
            server.cluster.put(pending("p", cpu="1"))
            server.cluster.put(pending("q", cpu="2"))
            server.cluster.put(pending("r", cpu="1"))
            assert await bound(server, "p", "q", "r") == {"p": "b", "q": "b", "r": "a"}
            await has_said(server, "p", "Successfully assigned shop/p to b")
            event = next(each for each in server.cluster.all(EVENTS) if "to b" in each["message"])
            assert (event["type"], event["reason"]) == ("Normal", "Scheduled")
            assert event["involvedObject"]["uid"].startswith("uid-")
            assert event["lastTimestamp"][:4] >= "2026"


async def test_pods_that_are_deleted_soon_leave_their_room(kubeconfig: Path) -> None:
    """Whichever watch is ahead, and however far their bindings have come."""
    whole = {"cpu": "4"}

    def come_and_go(number: int) -> None:
        for turn in range(20):
            name = f"short-{number}-{turn}"
            server.writer.create(PODS, NAMESPACE, pending(name, cpu="100m"))
            server.writer.delete(PODS, NAMESPACE, name, {"gracePeriodSeconds": 0})

    with serving(node("a", **whole)) as server:
        async with running_binder(server, kubeconfig):
            await asyncio.gather(*(asyncio.to_thread(come_and_go, number) for number in range(4)))
            server.cluster.put(pending("last", **whole))
            assert await bound(server, "last") == {"last": "a"}


async def test_pods_of_other_schedulers_are_not_touched(kubeconfig: Path) -> None:
    with serving(node("a"), pending("theirs", schedulerName="default-scheduler")) as server:
        async with running_binder(server, kubeconfig):
            server.cluster.put(pending("ours"))
            await bound(server, "ours")
    assert nodes_of(server) == {"ours": "a"}


async def test_taints_selectors_and_affinity_are_kept_to(kubeconfig: Path) -> None:
    tainted, labelled, plain = node("a"), node("b", labels={"disk": "ssd"}), node("c")
    tainted["spec"]["taints"] = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    field = {"key": "metadata.name", "operator": "In", "values": ["c"]}
    terms = {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    tolerating = [{"key": "gpu", "operator": "Exists"}]
    with serving(
        tainted,
        labelled,
        plain,
        pending("selects", nodeSelector={"disk": "ssd"}),
        pending("insists", affinity={"nodeAffinity": terms}),
        pending("tolerates", tolerations=tolerating, nodeSelector={"none": "such"}),
    ) as server:
        async with running_binder(server, kubeconfig):
            assert await bound(server, "selects", "insists") == {"selects": "b", "insists": "c"}
            await has_said(server, "tolerates", "0 of 3 nodes fit: 3 ruled out by selector")


async def test_unschedulable_pod_says_why_and_is_bound_when_there_is_room(
    kubeconfig: Path,
) -> None:
    with serving(node("a", cpu="1"), pending("p", cpu="2")) as server:
        async with running_binder(server, kubeconfig):
            await has_said(server, "p", "0 of 1 nodes fit: 1 short of cpu")
            await until(server, lambda: "conditions" in server.cluster.all(PODS)[0]["status"])
            condition = server.cluster.all(PODS)[0]["status"]["conditions"][0]
            assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
            server.cluster.put(node("b"))
            assert await bound(server, "p") == {"p": "b"}


async def test_what_cannot_be_judged_is_left_alone(kubeconfig: Path) -> None:
    odd = pending("odd", affinity={"podAffinity": {REQUIRED: [{}]}})
    with serving(node("a"), odd) as server:
        async with running_binder(server, kubeconfig):
            await has_said(server, "odd", "left alone: fedsched-binpack cannot judge pod affinity")
            server.cluster.put(pending("plain"))
            await bound(server, "plain")
    assert "odd" not in nodes_of(server)


async def test_anti_affinity_of_a_bound_pod_is_not_overlooked(kubeconfig: Path) -> None:
    lonely = pod("lonely", on="a")
    terms = [{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}]
    lonely["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: terms}}
    web = pending("web")
    web["metadata"]["labels"] = {"app": "web"}
    with serving(node("a"), lonely, web) as server:
        async with running_binder(server, kubeconfig):
            await has_said(server, "web", "cannot judge the anti-affinity of pod shop/lonely")
            server.cluster.remove(lonely)
            assert await bound(server, "web") == {"web": "a"}


async def test_gated_pod_waits_for_its_gates(kubeconfig: Path) -> None:
    with serving(node("a"), pending("gated", schedulingGates=[{"name": "g"}])) as server:
        async with running_binder(server, kubeconfig):
            server.cluster.put(pending("plain"))
            await bound(server, "plain")
            assert "gated" not in nodes_of(server)
            server.cluster.put(pending("gated"))
            await bound(server, "gated")


async def test_new_words_do_not_move_the_time_since_when_a_pod_has_no_node(
    kubeconfig: Path,
) -> None:
    """Karmada asks who has been pending for a minute, while reasons change every few seconds."""
    clock = Clock()

    def condition() -> dict[str, str]:
        found = server.cluster.all(PODS)[0]["status"].get("conditions", [{"message": ""}])[0]
        return {**found}

    with serving(node("a", cpu="1"), pending("p", cpu="2")) as server:
        garbled = Answer(status=200, body=b'{"spec": {"holderIdentity": "\xff"}}')
        server.faults.add(garbled, times=1, resource="leases", verb="get")
        async with running_binder(server, kubeconfig, clock):
            await until(server, lambda: "0 of 1 nodes fit" in condition()["message"])
            first = condition()
            # The form of MicroTime, also where a second is whole.
            assert server.cluster.all(LEASES)[0]["spec"]["renewTime"].endswith(".000000Z")
            server.cluster.put(node("b", cpu="1"))

            async def a_second_later() -> str:
                """It may have been tried once more before, and backs off for longer then."""
                clock.now += 1
                await asyncio.sleep(0.25)
                return condition()["message"]

            await patience.until(a_second_later, lambda found: "0 of 2 nodes fit" in found)
            assert condition() == {**first, "message": condition()["message"]}


async def test_gang_waits_until_it_is_whole_and_goes_together(kubeconfig: Path) -> None:
    with serving(node("a")) as server:
        async with running_binder(server, kubeconfig):
            for name in ("g1", "g2"):
                server.cluster.put(in_gang(pending(name), "g", 3))
            await has_said(server, "g1", "of 3 pods")
            assert nodes_of(server) == {}
            server.cluster.put(in_gang(pending("g3"), "g", 3))
            assert set(await bound(server, "g1", "g2", "g3")) == {"g1", "g2", "g3"}


async def test_gang_that_does_not_fit_takes_nothing(kubeconfig: Path) -> None:
    with serving(node("a", cpu="2")) as server:
        async with running_binder(server, kubeconfig):
            for name in ("g1", "g2", "g3"):
                server.cluster.put(in_gang(pending(name, cpu="1"), "g", 3))
            await has_said(server, "g3", "short of cpu")
            await has_said(server, "g1", "pod g3 of its group got no node")
            server.cluster.put(pending("small", cpu="2"))
            assert await bound(server, "small") == {"small": "a"}
    assert set(nodes_of(server)) == {"small"}


async def test_unreadable_groups_are_left_alone_and_what_is_no_group_is_not(
    kubeconfig: Path,
) -> None:
    group = "pod-group.scheduling.sigs.k8s.io"
    odd: dict[str, Any] = {"many": "many", "fraction": "3.0", "underlined": "1_0", "arabic": "٣"}
    alone: dict[str, dict[str, str]] = {
        **{f"of-{number}": {f"{group}/name": f"g{number}", f"{group}/min-available": number}
           for number in ("0", "-4", "1")},
        "no-number": {f"{group}/name": "g"},
        "no-name": {f"{group}/min-available": "3"},
        "empty-name": {f"{group}/name": "", f"{group}/min-available": "3"},
    }  # fmt: skip
    with serving(node("a")) as server:
        for name, minimum in odd.items():
            server.cluster.put(in_gang(pending(name), name, minimum))
        for name, labels in alone.items():
            document = pending(name, cpu="1m")
            document["metadata"]["labels"] = labels
            server.cluster.put(document)
        async with running_binder(server, kubeconfig):
            assert {*await bound(server, *alone)} == {*alone}
            for name, minimum in odd.items():
                await has_said(server, name, f"'{minimum}', not a number")
    assert nodes_of(server).keys() == alone.keys()


async def test_a_gang_is_what_its_first_pod_says_and_a_late_one_need_not_wait(
    kubeconfig: Path,
) -> None:
    with serving(node("a")) as server:
        async with running_binder(server, kubeconfig):
            server.cluster.put(in_gang(pending("g1", priority=5), "g", 2))
            await has_said(server, "g1", "group shop/g has 1 of 2 pods")
            for name, priority, minimum, said in (
                ("other", 5, 3, "group shop/g asks for 2 pods, not 3"),
                ("urgent", 6, 2, "group shop/g has priority 5, not 6"),
            ):
                odd = in_gang(pending(name, priority=priority), "g", minimum)
                server.cluster.put(odd)
                await has_said(server, name, said)
                server.cluster.remove(odd)
            # One that leaves counts no more, and one may change its group.
            server.cluster.put(in_gang(pending("moved"), "h", 2))
            server.cluster.put(pending("marker"))
            await bound(server, "marker")
            assert nodes_of(server).keys() == {"marker"}
            server.cluster.put(in_gang(pending("moved", priority=5), "g", 2))
            await bound(server, "g1", "moved")
            server.cluster.put(in_gang(pending("late", priority=5), "g", 2))
            await bound(server, "late")


async def test_room_promised_to_others_is_left_free(tmp_path: Path) -> None:
    nodes = [node(name, cpu="2", labels={"name": name}) for name in ("a", "b")]
    async with joined(tmp_path, *nodes, binder="true") as member:
        for binding, cpu, name in (("elsewhere/web", "2", "a"), ("shop/web", "1500m", "b")):
            claim = share(1, cpu, node_selector={"name": name})
            assert not (await member.place(binding, claim)).unplaced
        member.put(pending("promised", cpu="1500m"))
        member.put(pending("small", cpu="500m"), pending("large", cpu="1"))
        server = member.server
        assert await bound(server, "promised", "small") == {"promised": "b", "small": "b"}
        await has_said(server, "large", "0 of 2 nodes fit: 2 short of cpu")


async def test_binding_whose_answer_is_lost_is_found_to_be_made(kubeconfig: Path) -> None:
    with serving(node("a")) as server:

        def bind_it() -> None:
            target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "a"}}
            server.writer.bind("shop", "p", target)

        server.faults.add(First(act=bind_it), times=1, resource="pods", verb="create")
        async with running_binder(server, kubeconfig):
            server.cluster.put(pending("p"))
            await has_said(server, "p", "Successfully assigned")
    assert not any("not bound" in message for message in told(server, "p"))


@pytest.mark.parametrize("fault", [bad_gateway(), Drop()])
async def test_binding_that_fails_is_tried_again_elsewhere_in_time(
    kubeconfig: Path, fault: Any
) -> None:
    with serving(node("a")) as server:
        server.faults.add(fault, times=1, applies=lambda asked: asked.subresource == "binding")
        async with running_binder(server, kubeconfig):
            server.cluster.put(pending("p"))
            assert await bound(server, "p") == {"p": "a"}
        await has_said(server, "p", "not bound to a")


async def test_pod_that_vanished_leaves_no_trace(kubeconfig: Path) -> None:
    with serving(node("a", cpu="1")) as server:
        vanishing = pending("p", cpu="1")
        server.faults.add(
            First(act=lambda: server.cluster.remove(vanishing)),
            times=1,
            applies=lambda asked: asked.subresource == "binding",
        )
        async with running_binder(server, kubeconfig):
            server.cluster.put(vanishing)
            await asyncio.to_thread(
                server.wait_for_request, lambda asked: asked.subresource == "binding"
            )
            server.cluster.put(pending("q", cpu="1"))
            assert await bound(server, "q") == {"q": "a"}


def holder(server: KubeApiServer) -> str:
    leases = server.cluster.all(LEASES)
    return leases[0]["spec"].get("holderIdentity", "") if leases else ""


async def test_of_two_binders_one_binds_and_the_other_takes_over(
    kubeconfig: Path, tmp_path: Path
) -> None:
    with serving(node("a")) as server:
        async with running_binder(server, kubeconfig):
            await until(server, lambda: holder(server) != "")
            first = holder(server)
            async with running_binder(server, tmp_path / "other"):
                server.cluster.put(pending("p"))
                await bound(server, "p")
                assert holder(server) == first
            assert holder(server) == first
        assert holder(server) == ""
        async with running_binder(server, tmp_path / "other"):
            server.cluster.put(pending("q"))
            await bound(server, "q")
            assert holder(server) not in ("", first)
    bindings = [asked for asked in server.requests if asked.subresource == "binding"]
    assert len(bindings) == 2


async def test_leader_that_cannot_renew_stops_before_another_one_begins(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by its own clock, which may be wrong by days."""
    monkeypatch.setattr("estimator.kube.lease.RENEW_SECONDS", 0.02)
    clock, others = Clock(), Clock()
    others.now += 1e6

    async def asked(user: str) -> None:
        """Wait until this one has looked at the lease as it is now, and acted on it."""
        for _ in range(3):
            before = len(server.requests)
            await asyncio.to_thread(
                server.wait_for_request,
                lambda each: (each.user, each.verb, each.resource) == (user, "get", "leases"),
                after=before,
            )

    with serving(node("a")) as server:
        server.tokens["other"] = User(name="other")
        async with running_binder(server, kubeconfig, clock):
            await until(server, lambda: holder(server) != "")
            first = holder(server)
            async with running_binder(server, tmp_path / "other", others, user="other"):
                for _ in range(3):
                    # A renewal counts, whatever time it says.
                    await asked("other")
                    others.now += LEASE_SECONDS - 0.25
                    await asked("admin")
                assert holder(server) == first
                server.faults.add(
                    bad_gateway(),
                    resource="leases",
                    verb="update",
                    applies=lambda each: each.user == "admin",
                )
                await asked("admin")
                await asked("other")
                clock.now += GIVE_UP_SECONDS - 0.25
                others.now += LEASE_SECONDS - 0.25
                server.cluster.put(pending("p"))
                await bound(server, "p")
                clock.now += 0.25
                server.cluster.put(pending("q"))
                await asked("admin")
                await asked("other")
                assert (holder(server), nodes_of(server)) == (first, {"p": "a"})
                others.now += 0.25
                await bound(server, "q")
                lease = server.cluster.all(LEASES)[0]["spec"]
                assert lease["holderIdentity"] != first
                assert lease["leaseTransitions"] == 1
    assert [each.user for each in server.requests if each.subresource == "binding"] == [
        "admin",
        "other",
    ]


async def test_lease_is_given_back_beside_a_renewal_that_is_on_its_way(kubeconfig: Path) -> None:
    def renew() -> None:
        server.cluster.put(server.cluster.all(LEASES)[0])

    with serving(node("a")) as server:
        async with running_binder(server, kubeconfig):
            await until(server, lambda: server.cluster.all(LEASES) != [])
            server.faults.add(First(act=renew), times=1, verb="update", resource="leases")
        assert "holderIdentity" not in server.cluster.all(LEASES)[0]["spec"]
