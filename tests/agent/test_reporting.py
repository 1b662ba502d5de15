"""The agent's stream: what it says of itself and of its cluster, and when."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from estimator.cluster.label_use import KEPT_UNUSED, MAX_KEYS, RECENT_REQUESTS
from estimator.sight import TOLERATED_SECONDS
from federation.model.errors import (
    FederationError,
    PermissionRefused,
    PreconditionFailed,
    Unauthenticated,
)
from federation.model.grades import DEFAULT_MODEL, ResourceModel, model_hash
from federation.v1.agents_pb2 import (
    Ack,
    BindingInterest,
    Goodbye,
    InterestUpdate,
    NewCredential,
    Reconnect,
    Report,
    Resync,
    SoughtShape,
)
from federation.v1.resource_pb2 import NodeClaim, ObjectReference, ReplicaRequirements
from lab.agent_streams import CREDENTIAL, exchange, welcome
from lab.kubeapi.documents import namespace, node, pod
from lab.kubeapi.resources import Document
from lab.kubeapi.server import ADMIN_TOKEN
from lab.patience import until
from tests.agent.agents import START, Member, counts, ended, joined, joining, running_agent

SOON_SECONDS = 0.05
AWAY = grpc.StatusCode.UNAVAILABLE
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"


async def test_an_agent_joins_says_who_it_is_and_reports(tmp_path: Path) -> None:
    place = {REGION: "eu-1", ZONE: "eu-1a"}
    async with joining(tmp_path, node("a", labels=place), namespace("kube-system", "u")) as member:
        hello = await member.welcome()
        (enrolled,) = member.plane.joined
        assert (enrolled.cluster, enrolled.token, enrolled.cluster_uid) == ("member1", "token", "u")
        assert (enrolled.kubernetes_version, enrolled.provider) == ("v1.36.2", "aws")
        assert (enrolled.region, list(enrolled.zones)) == ("eu-1", ["eu-1a"])
        assert member.line.metadata["authorization"] == f"Bearer {CREDENTIAL}"
        assert (hello.epoch, hello.acknowledged_sequence, hello.placer) == (START * 1000, 0, "none")
        assert (hello.agent_version, hello.kubernetes_version) == (
            enrolled.agent_version,
            "v1.36.2",
        )
        assert (hello.agent_time.seconds, hello.takes_place_requests) == (START, True)
        report = await member.next_report()
        assert (report.epoch, report.sequence) == (START * 1000, 1)
        assert dict(report.allocatable) == {"cpu": 4000, "memory": 8 << 30, "pods": 10}
        assert (report.total_nodes, report.ready_nodes, report.graded_nodes) == (1, 1, 1)
        assert [each.count for each in report.grade_counts] == [0, 1, 0, 0, 0, 0, 0, 0, 0]
        assert report.model_hash == model_hash(DEFAULT_MODEL)
        assert report.snapshot_time.seconds == START
        # Another model is graded by at once.
        await member.line.send(welcome=welcome(model=ResourceModel()))
        report = await member.next_report()
        assert (len(report.grade_counts), report.model_hash, report.graded_nodes) == (0, "", 0)


@pytest.mark.parametrize(
    ("flags", "placer"),
    [
        ({"ports": ("extender_listen",)}, "extender"),
        ({"ports": ("extender_listen",), "binder": "true"}, "binder"),
    ],
)
async def test_an_agent_says_who_places_pods(tmp_path: Path, flags: Any, placer: str) -> None:
    async with joining(tmp_path, **flags) as member:
        assert (await member.welcome()).placer == placer


async def test_reports_come_at_their_beat_and_heartbeats_between(tmp_path: Path) -> None:
    async with joining(tmp_path, node("a")) as member:
        await member.welcome(heartbeat_seconds=SOON_SECONDS, report_seconds=SOON_SECONDS)
        first = await member.next_report()
        for _ in range(3):
            message = await member.line.receive()
            assert message is not None
            assert message.heartbeat.sequence == first.sequence
            assert message.heartbeat.content_hash == first.content_hash
        member.put(pod("p", on="a"))
        second = await member.next_report()
        assert second.sequence > first.sequence
        assert second.content_hash != first.content_hash
        assert dict(second.allocated) == {"cpu": 500, "pods": 1}
        # Another pace holds at once, and asks for no report; who is asked for one sends it whole.
        await member.line.send(welcome=welcome())
        await member.line.send(resync=Resync(reason="lost it"))
        third = await member.next_report()
        assert third.sequence > second.sequence
        assert third.content_hash == second.content_hash
        await member.line.send(welcome=welcome(heartbeat_seconds=SOON_SECONDS))
        message = await member.line.receive()
        assert message is not None
        assert message.heartbeat.sequence == third.sequence
        # Much of a change is told before its time.
        member.put(pod("q", on="a"))
        assert (await member.next_report()).allocated["cpu"] == 1000


async def test_it_dials_again_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async with joining(tmp_path, node("a")) as member:
        (await member.plane.next_line()).end(grpc.StatusCode.INTERNAL, "not now")
        (await member.plane.next_line()).end()
        epoch = (await member.welcome()).epoch
        report = await member.tell(interest("shop/web"))
        await member.line.send(ack=Ack(sequence=report.sequence))
        unsaid = await member.report()
        member.line.end(AWAY, "restarting")
        hello = await member.welcome()
        assert (hello.epoch, hello.acknowledged_sequence) == (epoch, report.sequence)
        again = await member.next_report()
        assert again.sequence > unsaid.sequence
        # What it was told to look for holds.
        assert again.interest_version == member.version
        await member.line.send(reconnect=Reconnect(after_seconds=0.1, reason="of age"))
        await member.welcome()
        # A stop says what was begun, and hangs up.
        await member.next_report()
        member.stopping.set()
        assert await member.line.receive() is None
        member.line.end()
        await ended(member.agent)


async def test_it_dials_its_endpoints_in_turn(tmp_path: Path) -> None:
    async with exchange() as first, exchange() as second:
        endpoints = (first.endpoint, second.endpoint)
        async with joining(tmp_path, endpoint=endpoints):
            # It begins anywhere.
            arrivals = [asyncio.create_task(each.next_line()) for each in (first, second)]
            await asyncio.wait(arrivals, return_when=asyncio.FIRST_COMPLETED)
            dialled = (first, second) if arrivals[0].done() else (second, first)
            for plane in dialled:
                arrival = arrivals[0 if plane is first else 1]
                (await arrival).end(AWAY, "try the other")
            for plane in dialled:
                (await plane.next_line()).end(AWAY, "try the other")


async def goodbye_alone(member: Member) -> None:
    await member.welcome()
    await member.line.send(goodbye=Goodbye(reason="it was revoked"))


async def goodbye_for_the_credential(member: Member) -> None:
    await goodbye_alone(member)
    member.line.end(grpc.StatusCode.UNAUTHENTICATED, "it was revoked")


async def not_authenticated(
    member: Member, code: grpc.StatusCode = grpc.StatusCode.UNAUTHENTICATED
) -> None:
    line = await member.plane.next_line()
    await line.receive_next("hello")
    line.end(code, "it was revoked")


async def not_found(member: Member) -> None:
    await not_authenticated(member, grpc.StatusCode.NOT_FOUND)


@pytest.mark.parametrize(
    ("refuse", "error"),
    [
        (goodbye_alone, PermissionRefused),
        (goodbye_for_the_credential, Unauthenticated),
        (not_authenticated, Unauthenticated),
        (not_found, Unauthenticated),
    ],
)
async def test_some_refusals_are_for_good(
    tmp_path: Path, refuse: Any, error: type[FederationError]
) -> None:
    async with joining(tmp_path) as member:
        await refuse(member)
        with pytest.raises(error, match="it was revoked"):
            await ended(member.agent)
        assert len(member.plane.joined) == 1


async def test_a_new_credential_is_stored_before_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "state" / "credential"

    def offer(name: str) -> NewCredential:
        expiry = Timestamp(seconds=2**33)
        return NewCredential(credential=f"{name}.secret", expire_time=expiry)

    async with joined(tmp_path, credential_file=str(path)) as member:
        await member.line.send(new_credential=offer("new"))
        stored = (await member.line.receive_next("credential_stored")).credential_stored
        assert stored.credential_id == "new"
        kept = json.loads(path.read_text())
        assert (kept["credential"], kept["expires_at"]) == ("new.secret", 2.0**33)
        # One that cannot be stored is not said to be, and not used.
        shutil.rmtree(path.parent)
        path.parent.write_text("in the way")
        await member.line.send(new_credential=offer("lost"))
        await member.line.send(resync=Resync())
        message = await member.line.receive()
        assert message is not None
        assert message.WhichOneof("message") == "report"
        member.line.end(AWAY, "restarting")
        await member.welcome()
        assert member.line.metadata["authorization"] == "Bearer new.secret"
        path.parent.unlink()
        await member.line.send(new_credential=offer("newer"))
        stored = (await member.line.receive_next("credential_stored")).credential_stored
        assert stored.credential_id == "newer"


async def test_lost_contact_is_dated_and_nothing_is_answered_blindly(tmp_path: Path) -> None:
    async with joined(tmp_path, node("a")) as member:
        server = member.server
        await asyncio.to_thread(server.wait_for_watches, "nodes", "pods", "resourcequotas")
        server.tokens = {"second": server.tokens[ADMIN_TOKEN]}
        server.end_watches()
        await member.report(lambda report: report.sight.picture_age_seconds == 0.0)
        await until(member.estimate, lambda reply: bool(reply.message))
        member.clock.now += 30.0
        # Without being asked, at once.
        heartbeat = (await member.line.receive_next("heartbeat")).heartbeat
        assert (heartbeat.sight.blind, heartbeat.sight.picture_age_seconds) == (True, 30.0)
        why = "the agent has not seen its cluster for 30 s: "
        for message in ((await member.estimate()).message, (await member.place("d/w")).message):
            assert message.startswith(why)
            assert "401" in message
        server.kubeconfig(tmp_path / "kubeconfig", "second")

        async def seen() -> Report:
            member.clock.now += TOLERATED_SECONDS / 10
            return await member.report()

        await until(seen, lambda report: not report.sight.blind)
        assert not (await until(member.estimate, lambda reply: not reply.message)).message


JOINING: Any = {"endpoint": ("127.0.0.1:1",), "insecure": "true", "join_token": "t"}


async def test_a_cluster_that_may_not_be_read_ends_the_agent(tmp_path: Path) -> None:
    async with joined(tmp_path) as member:
        config = str(member.server.kubeconfig(tmp_path / "config", "nobody"))
        async with running_agent(tmp_path, kubeconfig=config, **JOINING) as agent:
            with pytest.raises(PreconditionFailed, match=r"401: .*list and watch nodes and pods"):
                await ended(agent)


@pytest.mark.parametrize(
    "text", [None, "", '{"apiVersion": "v1", "kind": "Con', "[]", "x", "kind: Config"]
)
async def test_a_kubeconfig_that_is_none_or_not_whole_ends_the_agent(
    tmp_path: Path, text: str | None
) -> None:
    config = tmp_path / "config"
    if text is not None:
        config.write_text(text, encoding="utf-8")
    async with running_agent(tmp_path, kubeconfig=str(config), **JOINING) as agent:
        with pytest.raises(PreconditionFailed, match=str(config)):
            await ended(agent)


async def test_reports_tell_nodes_apart_by_labels_in_use(tmp_path: Path) -> None:
    nodes = []
    for number in range(4):
        labels = {"disk": "ssd" if number % 2 else "hdd", "rack": f"r{number}"}
        nodes.append(node(f"n{number}", labels=labels))
    async with joined(tmp_path, *nodes) as member:
        assert len((await member.report()).pools.pools) == 1
        picky = pod("p", on="n0")
        picky["spec"]["nodeSelector"] = {"disk": "hdd"}
        member.put(picky)
        report = await member.report(lambda report: report.pools.label_keys[0] == "disk")
        assert len(report.pools.pools) == 2
        picky["spec"]["nodeSelector"] = {"rack": "r1"}
        member.put({**picky, "metadata": {**picky["metadata"], "name": "q", "uid": "uid-q"}})
        report = await member.report(lambda report: len(report.pools.pools) == 4)
        assert list(report.pools.label_keys)[:2] == ["disk", "rack"]


KEYS = ("disk", "zone", "late")


async def test_labels_change_places_seldom_and_stay_for_a_while(tmp_path: Path) -> None:
    """Pools that are told apart in another order have to be built anew."""
    keys_of_many = [f"key-{number:02}" for number in range(40)]
    nodes = [
        node(f"n{number}", labels={key: f"{key}{number}" for key in (*KEYS, *keys_of_many)})
        for number in range(2)
    ]

    def selecting(key: str, count: int, begin: int = 0) -> list[Document]:
        made = [pod(f"{key}-{number}", cpu="1m") for number in range(begin, begin + count)]
        for each in made:
            each["spec"]["nodeSelector"] = {key: "x"}
        return made

    async with joined(tmp_path, *nodes) as member:

        def used(report: Report) -> list[str]:
            return [key for key in report.pools.label_keys if key in KEYS]

        async def keys(waiting: int) -> list[str]:
            """Once so many pods wait, the keys in use."""
            return used(await member.report(lambda found: found.allocating["pods"] == waiting))

        member.put(*selecting("disk", 5), *selecting("zone", 2))
        assert await keys(7) == ["disk", "zone"]
        member.put(*selecting("zone", 7, 2))
        assert await keys(14) == ["disk", "zone"]
        member.put(*selecting("zone", 1, 9))
        assert await keys(15) == ["zone", "disk"]
        # Requests count like pods as long as they are recent.
        claim = NodeClaim(node_selector={"late": "x"})
        await member.estimate(shapes=[ReplicaRequirements(node_claim=claim)] * RECENT_REQUESTS)
        # A report may be on its way that was made before the requests.
        await member.report(lambda report: used(report) == ["late", "zone", "disk"])
        # A key that comes and goes stays; one that nobody uses any more goes in the end.
        for _ in range(2):
            member.remove(*selecting("disk", 5))
            for _ in range(KEPT_UNUSED - 1):
                assert "disk" in await keys(10)
            member.put(*selecting("disk", 5))
            assert "disk" in await keys(15)
        for each in selecting("disk", 5):
            member.put({**each, "status": {"phase": "Failed"}})
        await member.report(lambda report: "disk" not in report.pools.label_keys)
        many = pod("many", cpu="1m")
        many["spec"]["nodeSelector"] = dict.fromkeys(keys_of_many, "x")
        member.put(many)
        report = await member.report(lambda report: "key-00" in report.pools.label_keys)
        assert sum(key.startswith("key-") for key in report.pools.label_keys) <= MAX_KEYS


OWNED: list[tuple[str, str, str, str, str, str]] = [
    # What the pod says of its controller, its template's hash, and whose it is.
    ("apps/v1", "ReplicaSet", "web-5d4f", "5d4f", "Deployment", "web"),
    ("apps/v1", "ReplicaSet", "bare-5d4f", "", "ReplicaSet", "bare-5d4f"),
    ("apps/v1", "ReplicaSet", "other", "5d4f", "ReplicaSet", "other"),
    ("apps/v1", "StatefulSet", "db-1", "5d4f", "StatefulSet", "db-1"),
    ("apps/v1", "DaemonSet", "log", "", "DaemonSet", "log"),
    ("batch/v1", "Job", "train", "", "Job", "train"),
    ("batch/v1", "Job", "backup-29391840", "", "Job", "backup-29391840"),
    ("batch/v1", "Job", "hourly-29391840", "", "CronJob", "hourly"),
    ("kubeflow.org/v1", "PyTorchJob", "train-1", "", "PyTorchJob", "train-1"),
]


async def test_pods_are_found_by_their_top_level_owner_or_by_their_labels(tmp_path: Path) -> None:
    documents, interests = [], []
    for api_version, kind, name, template_hash, owner_kind, owner_name in OWNED:
        document = pod(name, on="a", cpu="250m")
        document["metadata"]["labels"] = {"pod-template-hash": template_hash}
        controller = {"apiVersion": api_version, "kind": kind, "name": name, "controller": True}
        secret = {"apiVersion": "v1", "kind": "Secret", "name": "not-its-controller"}
        document["metadata"]["ownerReferences"] = [secret, controller]
        documents.append(document)
        owner = ObjectReference(
            api_version=api_version, kind=owner_kind, namespace="shop", name=owner_name
        )
        shape = SoughtShape(request={"cpu": 250}, decisions=["d"])
        interests.append(BindingInterest(binding=f"shop/{owner_name}", owner=owner, shapes=[shape]))
    labelled = pod("labelled", on="a", cpu="250m")
    marks = {"binding": "uid-set", "component": "tasks", "decision": "d2"}
    labelled["metadata"]["labels"] = {f"fedsched.io/{key}": each for key, each in marks.items()}
    alike = [
        SoughtShape(request={"cpu": 250}, component=each, decisions=["d2"])
        for each in ("boss", "tasks")
    ]
    interests.append(BindingInterest(binding="shop/set", uid="uid-set", shapes=alike))
    async with joined(tmp_path, node("a"), *documents, labelled) as member:
        report = await member.tell(*interests)
        assert counts(report) == {each.binding: (1, 0, 0) for each in interests}
        assert [each.component for each in report.echoes if each.component] == ["tasks"]


def interest(
    binding: str, *, uid: str = "", kind: str = "Deployment", cpu: int = 250, decision: str = "d"
) -> BindingInterest:
    """A binding's pods, by label or by the owner of its name."""
    group = "batch/v1" if kind.endswith("Job") else "apps/v1"
    owner = ObjectReference(
        api_version=group, kind=kind, namespace="shop", name=binding.rpartition("/")[2]
    )
    shape = SoughtShape(request={"cpu": cpu}, decisions=[decision])
    return BindingInterest(binding=binding, uid=uid, owner=owner, shapes=[shape])


def owned(name: str, controller: str, kind: str = "ReplicaSet", **fields: str) -> Document:
    document = pod(name, **{"cpu": "250m", **fields})
    group = "batch/v1" if kind == "Job" else "apps/v1"
    document["metadata"] |= {
        "labels": {"pod-template-hash": "5d4f"},
        "ownerReferences": [
            {"apiVersion": group, "kind": kind, "name": controller, "controller": True}
        ],
    }
    return document


async def test_pods_are_counted_for_the_promises_that_they_stand_for(tmp_path: Path) -> None:
    labelled = pod("l", on="a", cpu="250m")
    labelled["metadata"]["labels"] = {"fedsched.io/binding": "uid-web"}
    job = owned("j", "backup-29391840", "Job", on="a", phase="Succeeded")
    steps: list[tuple[list[Document], dict[str, tuple[int, int, int]]]] = [
        ([owned("p", "web-5d4f")], {"shop/web": (0, 1, 0)}),
        ([owned("p", "web-5d4f", on="a"), owned("q", "web-5d4f", on="a")], {"shop/web": (2, 0, 0)}),
        ([labelled], {"shop/web": (3, 0, 0)}),
        # Succeeded is finished for a job, and nothing for others.
        (
            [owned("q", "web-5d4f", on="a", phase="Succeeded"), job],
            {"shop/web": (2, 0, 0), "shop/backup": (0, 0, 1)},
        ),
    ]
    async with joined(tmp_path, node("a"), pod("other", on="a")) as member:
        await member.tell(
            interest("shop/web", uid="uid-web"), interest("shop/backup", kind="CronJob")
        )
        for documents, expected in steps:
            member.put(*documents)
            report = await member.report(lambda found, e=expected: counts(found) == e)
            sizes = {each.request["cpu"] for each in report.echo_shapes}
            assert sizes == {250}
        relabelled = {**labelled, "metadata": {**labelled["metadata"], "labels": {}}}
        member.put(relabelled)
        await member.report(lambda report: counts(report)["shop/web"] == (1, 0, 0))
        member.remove(owned("p", "web-5d4f"), job)
        await member.report(lambda report: not report.echoes)


async def test_pods_that_were_there_before_are_counted_with_the_answer(tmp_path: Path) -> None:
    before = [owned("p", "web-5d4f", on="a"), owned("q", "api-5d4f", on="a")]
    async with joined(tmp_path, node("a"), *before) as member:
        both = {"shop/web": (1, 0, 0), "shop/api": (1, 0, 0)}
        assert counts(await member.tell(interest("shop/web"), interest("shop/api"))) == both
        report = await member.tell(removed=("shop/web", "shop/never-told"))
        assert counts(report) == {"shop/api": (1, 0, 0)}
        report = await member.tell(interest("shop/web"), whole=True)
        assert counts(report) == {"shop/web": (1, 0, 0)}
        # What cannot be looked for is not said to be.
        update = InterestUpdate(version=99, bindings=[BindingInterest()])
        await member.line.send(interest=update)
        assert (await member.report()).interest_version == member.version


async def test_news_of_promises_comes_without_being_asked_for(tmp_path: Path) -> None:
    """More pods on nodes than ever told are news, and what is lost or looked for, too."""
    pods = [owned(name, "web-5d4f", on="a", cpu="1m") for name in ("p", "q")]

    async with joined(tmp_path, node("a")) as member:

        async def has_said(bound: int) -> None:
            """Without being asked for a report."""
            while counts(await member.next_report()) != {"shop/web": (bound, 0, 0)}:
                pass

        await member.tell(interest("shop/web", cpu=1))
        member.put(pods[0])
        await has_said(1)
        member.put(pods[1])
        await has_said(2)
        member.remove(pods[1])
        await member.report(lambda report: counts(report) == {"shop/web": (1, 0, 0)})
        # Scaled up again, and told of anew because of it.
        await member.tell(interest("shop/web", cpu=1, decision="d2"))
        member.put(pods[1])
        await has_said(2)


async def test_changes_of_what_to_look_for_are_answered_at_the_beat(tmp_path: Path) -> None:
    async with joining(tmp_path, node("a")) as member:
        await member.welcome(report_seconds=SOON_SECONDS)
        for version, binding in ((3, "shop/web"), (4, "shop/api")):
            update = InterestUpdate(version=version, bindings=[interest(binding)])
            await member.line.send(interest=update)
            while (await member.next_report()).interest_version != version:
                pass
        update = InterestUpdate(version=5, removed=["shop/web"])
        await member.line.send(interest=update)
        while (await member.next_report()).interest_version != 5:
            pass
