"""The agent as kube-scheduler's extender: its judgement of nodes, and pods on their way to them."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from estimator import side_servers
from estimator.cluster.holds import BINDING_SECONDS, PREPARING_SECONDS, UNSHOWN_SECONDS
from estimator.sight import PROOF_SECONDS, TOLERATED_SECONDS
from federation.certificates import make_certificates
from federation.model.errors import PreconditionFailed, Unavailable
from lab.binders import nodes_of
from lab.kubeapi.documents import node, pod
from lab.kubeapi.faults import Answer, bad_gateway, throttled
from lab.kubeapi.resources import PODS, Document
from lab.kubeapi.server import ADMIN_TOKEN
from lab.patience import until
from tests.agent.agents import Member, ended, joined, joining, running_agent, serving, share

BOTH = ("a", "b")
WATCH = "federation.runtime.watched_files.FileWatch"
ON_THEIR_WAY = "nodes have room only if pods that were let on them just now are on others"


async def kept(member: Member, asking: Document, *names: str) -> list[str]:
    """The nodes that are left of these; an error is none."""
    answer = await member.post("filter", {"Pod": asking, "NodeNames": names or BOTH})
    return answer.get("NodeNames") or []


async def points(member: Member, asking: Document) -> dict[str, int]:
    answer = await member.post("prioritize", {"Pod": asking, "NodeNames": BOTH})
    return {each["Host"]: each["Score"] for each in answer}


def order(name: str, target: str) -> dict[str, str]:
    return {"PodName": name, "PodNamespace": "shop", "PodUID": f"uid-{name}", "Node": target}


def changed(document: Document, **spec: Any) -> Document:
    return {**document, "spec": {**document["spec"], **spec}}


@pytest.mark.parametrize(
    "keys",
    [("Pod", "NodeNames"), ("pod", "nodenames"), ("POD", "NODENAMES")],
    ids=str,
)
async def test_keys_may_be_in_any_case(tmp_path: Path, keys: tuple[str, str]) -> None:
    async with serving(tmp_path, *map(node, BOTH), pod("busy", on="a", cpu="4")) as member:
        body = {keys[0]: pod("p"), keys[1]: ["a", "b", "elsewhere"], "Nodes": None, "new": 1}
        assert await member.post("scheduler/v2/filter", body) == {
            "NodeNames": ["b"],
            "FailedNodes": {
                "a": "short of cpu",
                "elsewhere": "the agent does not know this node",
            },
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        }
        scores = await member.post("prioritize", body)
        assert scores[2] == {"Host": "elsewhere", "Score": 0}


async def test_nodes_that_no_leaving_pod_helps_are_told_apart(tmp_path: Path) -> None:
    nodes = node("a"), node("b", labels={"disk": "ssd"})
    here, there = pod("here", on="a", cpu="3"), pod("there", on="b", cpu="3")
    async with serving(tmp_path, *nodes, here, there) as member:
        for asking, reasons in (
            (pod("large", cpu="5"), {"a": "short of cpu", "b": "short of cpu"}),
            (
                changed(pod("picky"), nodeSelector={"disk": "ssd"}),
                {"a": "ruled out by selector, affinity or taints"},
            ),
        ):
            answer = await member.post("filter", {"Pod": asking, "NodeNames": BOTH})
            assert answer["FailedAndUnresolvableNodes"] == reasons
        # Victims free their own node alone, and those that were never seen free nothing.
        victims = {"a": ["uid-here"], "b": ["uid-here"], "c": ["uid-here"]}
        body = {
            "Pod": pod("p", cpu="2"),
            "NodeNameToMetaVictims": {
                name: {"Pods": [{"UID": uid} for uid in uids]} for name, uids in victims.items()
            },
        }
        answer = await member.post("preempt", body)
        assert list(answer["NodeNameToMetaVictims"]) == ["a"]


async def test_a_profile_may_overlook_a_resource(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    arguments = "{name: NodeResourcesFit, args: {ignoredResources: [intel.com/foo]}}"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles: [{{schedulerName: default-scheduler, pluginConfig: [{arguments}]}}]\n"
    )
    asking = pod("p")
    asking["spec"]["containers"][0]["resources"]["requests"]["intel.com/foo"] = "1"
    asking["spec"]["schedulerName"] = "default-scheduler"
    async with serving(tmp_path, node("a"), scoring_config=str(path)) as member:
        assert await kept(member, asking, "a") == ["a"]


async def test_room_of_others_is_taken_and_own_room_comes_first(tmp_path: Path) -> None:
    """Nodes that were chosen for a binding wait for pods like its own, of its namespace."""
    flags: Any = {"ports": ("extender_listen",)}
    foreign = pod("q", cpu="1")
    foreign["metadata"]["namespace"] = "kube-system"
    nodes = node("a", labels={"disk": "ssd"}), node("b"), pod("busy", on="b", cpu="3")
    async with joined(tmp_path, *nodes, **flags) as member:
        await member.answers()
        assert not (
            await member.place("shop/web", share(3, node_selector={"disk": "ssd"}))
        ).unplaced
        ask = {"Pod": {**foreign, "spec": pod("q", cpu="2")["spec"]}, "NodeNames": BOTH}
        answer = await member.post("filter", ask)
        assert answer["FailedNodes"] == {
            "a": "short of cpu; the rest is promised to others",
            "b": "short of cpu",
        }
        own = await points(member, pod("p", cpu="1"))
        assert own["a"] == 10 > own["b"]
        assert await points(member, foreign) == {"a": 5, "b": 5}
        # Claims without room keep nobody away: of what is promised to others one core is left.
        member.put(pod("more", on="a", cpu="3"))
        await member.report(lambda report: report.allocated["cpu"] == 6000)
        assert await kept(member, pod("p", cpu="1"), "a") == ["a"]


async def test_a_pod_counts_where_it_was_let_until_it_is_seen(tmp_path: Path) -> None:
    async with serving(tmp_path, *map(node, BOTH), pod("busy", on="a", cpu="4")) as member:
        first, second = pod("first", cpu="3"), pod("second", cpu="3")
        member.put(first, second)
        assert await kept(member, first) == ["b"]
        for names in (["b"], ["a", "b"]):
            answer = await member.post("filter", {"Pod": second, "NodeNames": names})
            assert ON_THEIR_WAY in answer["Error"]
        # Whoever asks again was let on no node before.
        assert await kept(member, first) == ["b"]
        member.remove(pod("busy"))
        member.put(pod("first", on="a", cpu="3"))
        await until(lambda: kept(member, second), lambda found: found == ["b"])


@pytest.mark.parametrize("is_seen", [True, False], ids=["shown", "never shown"])
async def test_a_pod_that_is_deleted_takes_nothing(tmp_path: Path, *, is_seen: bool) -> None:
    """Also where another has deleted it before kube-scheduler's call comes."""
    gone, asking = pod("gone", cpu="3"), pod("asking", cpu="3")
    async with serving(tmp_path, node("a")) as member:
        if is_seen:
            member.put(gone)
            member.remove(gone)
        assert await kept(member, gone, "a") == ["a"]
        if not is_seen:
            assert await kept(member, asking, "a") == []
            member.clock.now += UNSHOWN_SECONDS
        await until(lambda: kept(member, asking, "a"), lambda found: found == ["a"])

        async def counts() -> bool:
            await kept(member, pod("asking", cpu="5"), "a")
            await kept(member, gone, "a")
            return await kept(member, asking, "a") == []

        # Shown again, it was not deleted.
        if is_seen:
            assert not await counts()
            member.put(gone)
            await until(counts, bool)


@pytest.mark.parametrize("is_prepared", [True, False], ids=["prepared", "plain"])
@pytest.mark.parametrize("is_shown", [True, False], ids=["shown", "never shown"])
async def test_a_pod_counts_for_a_time(
    tmp_path: Path, *, is_shown: bool, is_prepared: bool
) -> None:
    """Volumes and devices of some are prepared before they are bound."""
    seconds = PREPARING_SECONDS if is_prepared else BINDING_SECONDS
    let, asking = pod("let", cpu="3"), pod("asking", cpu="3")
    if is_prepared:
        let["spec"]["resourceClaims"] = [{"name": "gpu"}]
    async with serving(tmp_path, node("a")) as member:
        assert await kept(member, let, "a") == ["a"]
        if is_shown:
            # After it was let on, and before the first time is over.
            member.put(let, pod("marker", on="a", cpu="1500m"))
            small = pod("small", cpu="2600m")
            await until(
                lambda: member.post("filter", {"Pod": small, "NodeNames": ["a"]}),
                lambda answer: answer.get("FailedNodes") == {"a": "short of cpu"},
            )
            member.put(pod("marker", on="a", cpu="0"))
        member.clock.now += (seconds if is_shown else UNSHOWN_SECONDS) - 0.1
        assert await kept(member, asking, "a") == []
        member.clock.now += 0.1
        await until(lambda: kept(member, asking, "a"), lambda found: found == ["a"])


def of_version(name: str, version: int) -> Document:
    """A pod of three cores as kube-scheduler sends it."""
    document = pod(name, cpu="3")
    document["metadata"]["resourceVersion"] = str(version)
    return document


async def test_a_pod_that_the_watch_is_past_and_has_not_shown_is_gone(tmp_path: Path) -> None:
    asking = pod("asking", cpu="3")

    async def fits(member: Member) -> bool:
        return await kept(member, asking, "a") == ["a"]

    async with serving(tmp_path, node("a")) as member:
        cluster = member.server.cluster
        # It was deleted before the list.
        assert await kept(member, of_version("before", cluster.version), "a") == ["a"]
        assert await fits(member)
        await kept(member, pod("asking", cpu="5"), "a")
        # Its call comes before the watch has reached its version; then others are shown.
        assert await kept(member, of_version("short", cluster.version + 1), "a") == ["a"]
        assert not await fits(member)
        member.put(pod("elsewhere", cpu="1m"))
        await until(lambda: fits(member), bool)
        await kept(member, pod("asking", cpu="5"), "a")
        # A bookmark is progress, too: a node's change moves the version of everything.
        await asyncio.to_thread(member.server.wait_for_watches, "pods")
        assert await kept(member, of_version("brief", cluster.version + 1), "a") == ["a"]
        member.put(node("a", labels={"zone": "1"}))
        cluster.read_consistently(PODS)
        member.server.send_bookmarks()
        await until(lambda: fits(member), bool)
        await kept(member, pod("asking", cpu="5"), "a")
        # One that is shown late is not forgotten.
        late = of_version("late", cluster.version + 1)
        assert await kept(member, late, "a") == ["a"]
        member.put(pod("late", cpu="3"), pod("marker", on="a", cpu="1"))
        tiny = pod("tiny", cpu="3500m")
        await until(
            lambda: member.post("filter", {"Pod": tiny, "NodeNames": ["a"]}),
            lambda answer: answer.get("FailedNodes") == {"a": "short of cpu"},
        )
        assert not await fits(member)


@pytest.mark.parametrize(("priority", "nodes"), [(9, []), (10, []), (11, ["a"])])
async def test_room_of_a_nominated_pod_is_open_to_higher_priorities_alone(
    tmp_path: Path, priority: int, nodes: list[str]
) -> None:
    urgent = changed(pod("urgent", cpu="3"), priority=10)
    urgent["status"]["nominatedNodeName"] = "a"
    async with serving(tmp_path, node("a"), urgent) as member:
        assert await kept(member, changed(pod("p", cpu="2"), priority=priority), "a") == nodes
        if not nodes:
            assert await kept(member, urgent, "a") == ["a"]


async def test_a_binding_counts_at_once_and_only_where_it_is_made(tmp_path: Path) -> None:
    waiting = [pod("p", cpu="3"), pod("q", cpu="3")]
    async with serving(tmp_path, *map(node, BOTH), *waiting) as member:
        assert await member.post("bind", order("p", "a")) == {"Error": ""}
        assert nodes_of(member.server) == {"p": "a"}
        assert await kept(member, waiting[1]) == ["b"]
        # The API server refuses, and a node that is not there is not asked for.
        answer = await member.post("bind", order("p", "b"))
        assert 'already assigned to node "a"' in answer["Error"]
        answer = await member.post("bind", order("q", "elsewhere"))
        assert "does not know this node" in answer["Error"]
        assert await kept(member, waiting[1]) == ["b"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (bad_gateway(), "503"),
        (throttled(2), "429"),
        (Answer(status=403, body=b'{"kind":"Status","message":"not yours"}'), "not yours"),
        (Answer(status=422, body=b"<html>"), "422"),
    ],
)
async def test_a_binding_that_is_refused_may_be_made_later(
    tmp_path: Path, fault: Answer, said: str
) -> None:
    async with serving(tmp_path, node("a"), pod("p")) as member:
        server = member.server
        # Another pod had the name before, or has none.
        for wrong in ({**order("p", "a"), "PodUID": "of-before"}, order("gone", "a")):
            assert (await member.post("bind", wrong))["Error"]
        assert nodes_of(server) == {}
        server.faults.add(fault, times=1, verb="create")
        assert said in (await member.post("bind", order("p", "a")))["Error"]
        # The token is another one now: it is read again after a refusal.
        server.tokens = {"second": server.tokens[ADMIN_TOKEN]}
        assert (await member.post("bind", order("p", "a")))["Error"]
        server.kubeconfig(tmp_path / "kubeconfig", "second")
        for _ in range(2):
            assert await member.post("bind", order("p", "a")) == {"Error": ""}
        assert nodes_of(server) == {"p": "a"}


async def test_an_agent_without_a_picture_says_so_instead_of_judging(tmp_path: Path) -> None:
    body = {"Pod": pod("p"), "NodeNames": ["a"]}
    async with serving(tmp_path) as member:
        assert await member.post("filter", body) == {"Error": "the agent knows no nodes yet"}
        member.put(node("a"))
        await until(lambda: kept(member, pod("p"), "a"), lambda found: found == ["a"])
        server = member.server
        await asyncio.to_thread(server.wait_for_watches, "nodes", "pods", "resourcequotas")
        server.tokens = {"second": server.tokens[ADMIN_TOKEN]}
        server.end_watches()

        async def after_a_while() -> Any:
            member.clock.now += TOLERATED_SECONDS / 5
            return await member.post("filter", body)

        answer = await until(after_a_while, lambda answer: "NodeNames" not in answer)
        assert "the agent has not seen its cluster for " in answer["Error"]
        assert "Error" in await member.post("prioritize", body)
        server.kubeconfig(tmp_path / "kubeconfig", "second")

        async def once_proven() -> list[str]:
            member.clock.now += PROOF_SECONDS / 5
            return await kept(member, pod("p"), "a")

        await until(once_proven, lambda found: found == ["a"])


async def test_it_does_not_wait_for_ever_to_be_told_what_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(side_servers, "PROMISES_SECONDS", 0.01)
    async with joining(tmp_path, node("a"), ports=("extender_listen",)) as member:
        # A stream that nobody welcomes, and that ends with the test.
        member.lines.append(await member.plane.next_line())
        await member.answers()
    assert "begins without knowing what is promised here" in caplog.text


async def test_many_pods_on_their_way_are_an_end_and_few_deleted_ones_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("estimator.cluster.holds.MAX_PODS", 2)
    monkeypatch.setattr("estimator.cluster.holds.MAX_DELETED", 2)
    large = [pod(name, cpu="3") for name in ("first", "second", "third")]
    async with serving(tmp_path, node("a"), *large) as member:
        member.remove(*large)
        tiny = pod("tiny", cpu="2600m")
        member.put(pod("marker", on="a", cpu="1500m"))
        await until(lambda: kept(member, tiny, "a"), lambda found: found == [])
        member.put(pod("marker", on="a", cpu="0"))
        await until(lambda: kept(member, pod("x", cpu="4"), "a"), lambda found: found == ["a"])
        assert await kept(member, pod("x", cpu="5"), "a") == []
        for document, is_remembered in zip(reversed(large), (True, True, False), strict=True):
            assert await kept(member, document, "a") == ["a"]
            assert (await kept(member, pod("asking", cpu="3"), "a") == ["a"]) is is_remembered
            await kept(member, pod("asking", cpu="5"), "a")
        member.clock.now += UNSHOWN_SECONDS
        for name in ("p", "q", "q"):
            assert await kept(member, pod(name, cpu="1"), "a") == ["a"]
        answer = await member.post("filter", {"Pod": pod("r", cpu="1"), "NodeNames": ["a"]})
        assert "2 pods were let on nodes" in answer["Error"]
        member.clock.now += UNSHOWN_SECONDS
        assert await kept(member, pod("r", cpu="1"), "a") == ["a"]


async def test_a_port_that_is_taken_ends_the_agent(tmp_path: Path) -> None:
    async with serving(tmp_path) as member:
        config = str(tmp_path / "kubeconfig")
        listen = f"127.0.0.1:{member.ports['extender_listen']}"
        async with running_agent(tmp_path, kubeconfig=config, extender_listen=listen) as second:
            with pytest.raises(Unavailable, match="cannot listen on"):
                await ended(second)


def client_certificate(path: Path) -> Path:
    """A client that vouches for itself: certificate and key in one file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-scheduler")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(certificate.public_bytes(pem) + key_pem)
    return path


async def test_tls_hears_clients_of_its_authority_alone_and_files_are_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new certificate, and clients of another authority in place of those before."""
    monkeypatch.setattr(f"{WATCH}.__init__.__defaults__", (0.1,))
    authority = tmp_path / "clients.pem"
    before = make_certificates(tmp_path / "shown", ["127.0.0.1"], now=datetime.now(UTC))
    trusted_before = before.ca.read_text(encoding="ascii")
    clients = [client_certificate(tmp_path / f"{name}.pem") for name in ("before", "after")]
    authority.write_bytes(clients[0].read_bytes())
    flags = {
        "extender_tls_cert": str(before.cert),
        "extender_tls_key": str(before.key),
        "extender_client_ca": str(authority),
    }
    async with serving(tmp_path, node("a"), **flags) as member:

        async def is_answered(trusted: str, client: Path | None) -> bool:
            context = ssl.create_default_context(cadata=trusted)
            if client is not None:
                context.load_cert_chain(client)
            url = f"https://127.0.0.1:{member.ports['extender_listen']}/healthz"
            async with aiohttp.ClientSession() as session:
                try:
                    async with session.get(url, ssl=context) as response:
                        return response.status == 200
                except aiohttp.ClientError:
                    return False

        assert await is_answered(trusted_before, clients[0])
        assert not await is_answered(trusted_before, clients[1])
        assert not await is_answered(trusted_before, None)
        after = make_certificates(tmp_path / "next", ["127.0.0.1"], now=datetime.now(UTC))
        for path, renewed in ((before.cert, after.cert), (before.key, after.key)):
            path.write_bytes(renewed.read_bytes())
        authority.write_bytes(clients[1].read_bytes())
        trusted_after = after.ca.read_text(encoding="ascii")
        await until(lambda: is_answered(trusted_after, clients[1]), bool)
        assert not await is_answered(trusted_after, clients[0])
        assert not await is_answered(trusted_before, clients[1])


async def test_tls_files_that_are_none_end_the_agent(tmp_path: Path) -> None:
    flags = {"extender_tls_cert": str(tmp_path / "no"), "extender_tls_key": str(tmp_path / "no")}
    with pytest.raises(PreconditionFailed, match="TLS"):
        async with serving(tmp_path, **flags):
            pass
