"""Karmada's protocol as it is on the wire: bytes in, bytes out, no stubs of ours in between."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from estimator.cluster.holds import EXPIRY_SECONDS
from lab.kubeapi.documents import node, pod, quota
from lab.kubeapi.resources import Document
from lab.patience import PATIENCE_SECONDS, until
from tests.agent.agents import START, Member, joined, serving, share

PATH = "/github.com.karmada_io.karmada.pkg.estimator.service.Estimator/"
GPU = "nvidia.com/gpu"


def varint(number: int) -> bytes:
    number %= 1 << 64
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, content: bytes | str | int) -> bytes:
    """One field as protobuf writes it."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def entry(number: int, key: str, value: bytes | str) -> bytes:
    """One entry of a map."""
    return field(number, field(1, key) + field(2, value))


def request(amounts: Mapping[str, str], number: int = 5) -> bytes:
    return b"".join(entry(number, name, field(1, text)) for name, text in amounts.items())


def expression(key: str, operator: str, *values: str) -> bytes:
    return field(1, key) + field(2, operator) + b"".join(field(3, value) for value in values)


def terms(*expressions: bytes) -> bytes:
    """A NodeSelector of one term."""
    return field(1, b"".join(field(1, each) for each in expressions))


def replicas_request(requirements: bytes, *assumed: bytes, cluster: str = "member1") -> bytes:
    return field(1, cluster) + field(2, requirements) + b"".join(field(3, each) for each in assumed)


def component(replicas: int, amounts: Mapping[str, str], priority: str = "") -> bytes:
    requirements = (field(3, priority) if priority else b"") + request(amounts, number=4)
    return field(1, "c") + field(2, requirements) + field(3, replicas)


def labelled(name: str, cpu: str = "4", **labels: str) -> Document:
    return node(name, cpu=cpu, labels={"disk": "ssd", "zone": "a", "generation": "4", **labels})


def nodes() -> list[Document]:
    tainted = labelled("n4", cpu="2", zone="b", generation="9")
    tainted["spec"]["taints"] = [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]
    tainted["status"]["allocatable"][GPU] = "2"
    made = [
        labelled("n1"),
        labelled("n2", disk="hdd"),
        labelled("n3", zone="c", generation="3"),
        tainted,
    ]
    for each in made:
        each["status"]["allocatable"]["memory"] = "16Gi"
    return made


class Wire:
    """Calls by path, bytes for bytes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def ask(self, method: str, content: bytes) -> int:
        """The one number of the answer, which is field 1 and not written when it is 0."""
        answer = await self._channel.unary_unary(PATH + method)(content, timeout=PATIENCE_SECONDS)
        if answer == b"":
            return 0
        assert answer[0] == 1 << 3
        number = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(answer[1:]))
        assert answer[1:] == varint(number)
        return number

    async def refused(self, method: str, content: bytes) -> str:
        """What an INVALID_ARGUMENT says."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.ask(method, content)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        return caught.value.details() or ""

    async def replicas(self, requirements: bytes = b"", *assumed: bytes) -> int:
        return await self.ask("MaxAvailableReplicas", replicas_request(requirements, *assumed))


@asynccontextmanager
async def asked(member: Member) -> AsyncIterator[Wire]:
    await member.answers()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{member.ports['karmada_port']}") as channel:
        yield Wire(channel)


@pytest.fixture
async def member(tmp_path: Path) -> AsyncIterator[Member]:
    async with serving(tmp_path, *nodes(), ports=("karmada_port",)) as member:
        yield member


@pytest.fixture
async def wire(member: Member) -> AsyncIterator[Wire]:
    async with asked(member) as wire:
        yield wire


# What a scheduler of Karmada's sends, byte for byte.
WHOLE_QUESTION = bytes.fromhex(
    "0a07 6d656d62657231"  # cluster: member1
    "1281010a59"  # replicaRequirements, and in it nodeClaim:
    "120b 0a04 6469736b 1203 737364"  # nodeSelector disk=ssd
    "2229 0a27"  # nodeAffinityBytes, one term:
    "0a10 0a04 7a6f6e65 1202 496e 1a01 61 1a01 62"  # zone In a, b
    "0a13 0a0a 67656e65726174696f6e 1202 4774 1a01 33"  # generation Gt 3
    "2a1f 0a09 646564696361746564 1206 457869737473 220a 4e6f5363686564756c65"  # toleration
    "1a04 73686f70"  # namespace: shop
    "2a0d 0a03 637075 1206 0a04 3530306d"  # cpu 500m
    "2a0f 0a06 6d656d6f7279 1205 0a03 314769"  # memory 1Gi
)


async def test_a_whole_question(wire: Wire) -> None:
    assert await wire.ask("MaxAvailableReplicas", WHOLE_QUESTION) == 4000 // 500 + 2000 // 500


async def test_the_stub_and_the_bytes_agree(wire: Wire) -> None:
    """What the test writes by hand is what protobuf writes."""
    affinity = terms(expression("zone", "In", "a", "b"), expression("generation", "Gt", "3"))
    toleration = field(1, "dedicated") + field(2, "Exists") + field(4, "NoSchedule")
    claim = entry(2, "disk", "ssd") + field(4, affinity) + field(5, toleration)
    asked = field(1, claim) + field(3, "shop") + request({"cpu": "500m", "memory": "1Gi"})
    assert replicas_request(asked) == WHOLE_QUESTION


async def test_no_requirements_take_the_free_pod_slots_of_untainted_nodes(wire: Wire) -> None:
    assert await wire.ask("MaxAvailableReplicas", field(1, "member1")) == 30
    assert await wire.replicas(request({"cpu": "0", "memory": ""})) == 30


async def test_requests(wire: Wire) -> None:
    asked: list[tuple[dict[str, str], int]] = [
        ({"cpu": "1"}, 12),
        ({"cpu": "1", "memory": "8Gi"}, 6),
        ({"cpu": "1", "memory": "8589934593"}, 3),
        ({GPU: "1"}, 0),
        ({"example.com/nobody-has-it": "1"}, 0),
        ({"example.com/nobody-has-it": "0"}, 30),
        ({"cpu": "1e3"}, 0),
    ]
    for amounts, replicas in asked:
        assert await wire.replicas(request(amounts)) == replicas, amounts


async def test_older_clients_send_messages_in_place_of_bytes(wire: Wire) -> None:
    claim = field(1, terms(expression("zone", "In", "b"))) + field(3, field(2, "Exists"))
    asked = field(1, claim) + request({"cpu": "500m"}, number=2)
    assert await wire.replicas(asked) == 4


async def test_bytes_win_over_messages(wire: Wire) -> None:
    asked = request({"cpu": "4"}, number=2) + request({"cpu": "1"})
    assert await wire.replicas(asked) == 12


async def test_node_claims(wire: Wire) -> None:
    for claim, replicas in (
        (field(4, b""), 0),  # an affinity without terms matches nothing
        (field(4, field(1, b"")), 0),  # nor does a term without expressions
        (field(4, field(1, b"") + terms(expression("zone", "In", "c"))), 4),
        (field(4, terms(expression("zone", "NotIn", "a"))), 4),
        (field(4, terms(expression("zone", "Exists"), expression("x", "DoesNotExist"))), 12),
        (field(4, terms(expression("generation", "Lt", "4"))), 4),
        (field(4, field(1, field(2, expression("metadata.name", "In", "n2")))), 4),
        (entry(2, "zone", "c") + entry(2, "disk", "ssd"), 4),
        (field(5, field(1, "dedicated") + field(3, "db")), 14),  # no operator: Equal
        (field(5, field(1, "dedicated") + field(3, "web")), 12),
        (field(5, field(2, "Exists")), 14),
    ):
        asked = field(1, claim) + request({"cpu": "1"})
        assert await wire.replicas(asked) == replicas, claim


async def test_what_is_wrong_is_told_by_its_field(wire: Wire) -> None:
    for requirements, told in (
        (
            field(1, field(4, b"\xff\xff")),
            "replicaRequirements.nodeClaim.nodeAffinityBytes: is not",
        ),
        (field(1, field(5, b"\x0a\x05x")), "nodeClaim.tolerationsBytes[0]: is not"),
        (entry(5, "cpu", b"\x0a\x7f1"), "resourceRequestBytes[cpu]: is not a Quantity"),
        (request({"cpu": "-1"}), "resourceRequest[cpu]: '-1' is negative"),
        (request({"cpu": "ten"}), "resourceRequest[cpu]: 'ten' is not a quantity"),
        (request({"cpu": "1E30"}), "resourceRequest[cpu]: '1E30' is too large"),
        (request({"not a name": "1"}), "resourceRequest[not a name]: a resource name"),
        (
            field(1, field(4, terms(expression("zone", "Near", "a")))),
            "matchExpressions[0].operator: must be one of",
        ),
        (
            field(1, field(4, terms(expression("generation", "Gt", "four")))),
            "matchExpressions[0].values: Gt takes exactly one whole number",
        ),
        (field(1, field(4, terms(expression("zone", "In")))), "In needs at least one value"),
        (field(1, field(5, field(1, "a") + field(2, "Sometimes"))), "tolerations[0].operator"),
    ):
        asked = replicas_request(requirements)
        assert told in await wire.refused("MaxAvailableReplicas", asked)


async def test_what_is_no_protobuf_is_refused(wire: Wire) -> None:
    sets, unschedulable = "MaxAvailableComponentSets", "GetUnschedulableReplicas"
    for method in ("MaxAvailableReplicas", sets, unschedulable):
        assert "as protobuf" in await wire.refused(method, b"\xff\xff\xff")
        assert "as protobuf" in await wire.refused(method, field(1, b"\xc3\x28"))


async def test_a_question_about_another_cluster_is_refused(wire: Wire) -> None:
    told = await wire.refused("MaxAvailableReplicas", replicas_request(b"", cluster="member2"))
    assert told.startswith("cluster: ")


async def test_assumed_workloads_are_placed_first(wire: Wire) -> None:
    held = field(1, "shop") + field(2, component(2, {"cpu": "3"}))
    assert await wire.replicas(request({"cpu": "1"}), held) == 12 - 6
    assert await wire.replicas(request({"cpu": "1"}), held, held) == 12 - 9


async def test_sets(wire: Wire) -> None:
    asked = field(2, component(1, {"cpu": "1"})) + field(2, component(3, {"cpu": "500m"}))
    assert await wire.ask("MaxAvailableComponentSets", field(1, "member1") + asked) == 4
    held = field(2, component(1, {"cpu": "3"}))
    assert await wire.ask("MaxAvailableComponentSets", asked + field(4, held)) == 3
    nothing = field(2, component(0, {"cpu": "1"}))
    assert await wire.ask("MaxAvailableComponentSets", nothing) == 40


async def test_wrong_sets_are_told_by_their_field(wire: Wire) -> None:
    for asked, told in (
        (b"", "components: must name at least one"),
        (field(2, component(-1, {})), "components[0].replicas: must be 0 to"),
        (
            field(2, component(1, {"cpu": "-1"})),
            "components[0].replicaRequirements.resourceRequest",
        ),
        (
            field(2, component(1, {})) + field(4, field(2, component(1, {"cpu": "x"}))),
            "assumedWorkloads[0].components[0].replicaRequirements.resourceRequest[cpu]",
        ),
        (field(2, component(1, {})) * 10_001, "components: must be at most 10000"),
    ):
        assert told in await wire.refused("MaxAvailableComponentSets", asked)


async def test_quotas_of_the_namespace_count(wire: Wire, member: Member) -> None:
    asking = request({"cpu": "1"}) + field(3, "shop")
    assert await wire.replicas(asking) == 12
    member.put(quota("2500m"))
    await until(lambda: wire.replicas(asking), lambda found: found == 2)
    assert await wire.replicas(request({"cpu": "1"})) == 12
    sets = field(2, component(2, {"cpu": "1"})) + field(3, "shop")
    assert await wire.ask("MaxAvailableComponentSets", sets) == 1


async def test_claimed_room_is_not_free(tmp_path: Path) -> None:
    """Whoever asks over this wire knows nothing of what was promised here."""
    sets = field(2, component(2, {"cpu": "1"}))
    async with (
        joined(tmp_path, *nodes(), ports=("karmada_port",)) as member,
        asked(member) as wire,
    ):
        for replicas, of_two in ((12, 6), (9, 4), (12, 6)):
            assert await wire.replicas(request({"cpu": "1"})) == replicas
            assert await wire.ask("MaxAvailableComponentSets", sets) == of_two
            if replicas == 9:
                # A claim that nobody's pods came for.
                member.clock.now += EXPIRY_SECONDS
            else:
                claim = share(3, node_selector={"zone": "a", "disk": "ssd"})
                assert not (await member.place("shop/web", claim)).unplaced


created = itertools.count(1)


def pending(name: str, owner: str, since: float | None, revision: str = "r") -> Document:
    """A pod of a deployment that has found no node for so many seconds."""
    document = pod(name)
    document["metadata"] |= {
        "labels": {"pod-template-hash": revision},
        "creationTimestamp": timestamp(next(created)),
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"{owner}-{revision}",
                "controller": True,
            }
        ],
    }
    if since is not None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        changed_at = timestamp(START - since)
        document["status"]["conditions"] = [{**condition, "lastTransitionTime": changed_at}]
    return document


def timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def about(name: str, seconds: int, kind: str = "Deployment") -> bytes:
    resource = field(1, "apps/v1") + field(2, kind) + field(3, "shop") + field(4, name)
    return field(1, "member1") + field(2, resource) + field(3, seconds * 10**9)


async def test_unschedulable_replicas(wire: Wire, member: Member) -> None:
    member.put(
        pending("old", "web", 900, "r1"),
        pending("a", "web", 300, "r2"),
        pending("b", "web", 299, "r2"),
        pending("c", "web", None, "r2"),
        pending("d", "api", 900),
    )
    ask = "GetUnschedulableReplicas"
    await until(lambda: wire.ask(ask, about("api", 300)), lambda found: found == 1)
    assert await wire.ask(ask, about("web", 300)) == 1
    assert await wire.ask(ask, about("web", 0)) == 2
    assert await wire.ask(ask, about("web", 300, kind="StatefulSet")) == 0
    assert await wire.ask(ask, about("nobody", 300)) == 0
    assert "resource.name: is required" in await wire.refused(ask, about("", 300))


async def test_an_agent_without_nodes_is_unavailable(tmp_path: Path) -> None:
    script = tmp_path / "report.json"
    script.write_text('{"nodeSummary": {}, "resourceSummary": {}}')
    flags: Any = {"kubeconfig": None, "report": str(script)}
    async with (
        serving(tmp_path, ports=("karmada_port",), **flags) as member,
        asked(member) as wire,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await wire.replicas()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
