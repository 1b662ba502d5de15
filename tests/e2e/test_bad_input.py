"""Wrong objects and reports, sent to a running control plane by gRPC and by fedctl.

Each time: the right code, the field by name, no row written, no stack trace, and the server lives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from federation.codec.strict import message_from_document
from federation.v1 import clusters_pb2, resource_pb2
from federation.v1.agents_pb2 import ConnectRequest, Heartbeat, Report
from federation.v1.clusters_pb2_grpc import ClustersStub
from lab.control_planes import graded, hello, report
from tests.e2e.planes import BINDING, MEBIBYTE, Plane, binding, plane, said_by_member1, told

__all__ = ["plane"]

INVALID, DENIED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED
MAX_INT64 = 2**63 - 1
CLUSTER = {"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster"}


def request(**amounts: Any) -> dict[str, Any]:
    return binding(replicaRequirements={"resourceRequest": amounts})


def grade(number: int, *ranges: tuple[str, str, str]) -> dict[str, Any]:
    names = ("name", "min", "max")
    return {"grade": number, "ranges": [dict(zip(names, each, strict=True)) for each in ranges]}


QUANTITIES = ["1 Gi", "-1", "1e", "9" * 30, "", "NaN", "0x10", "1e999", "\u0661"]
CPU = "spec.replicaRequirements.resourceRequest[cpu]"
WEIGHTS = "spec.placement.replicaScheduling.weightPreference.staticWeightList[0].weight"
BINDINGS: dict[str, tuple[dict[str, Any], str]] = {
    **{f"quantity {each!r}": (request(cpu=each), CPU) for each in QUANTITIES},
    "replicas -1": (binding(replicas=-1), "spec.replicas"),
    "replicas 2^31": (binding(replicas=2**31), "spec.replicas"),
    "no placement": ({**BINDING, "spec": {"replicas": 1}}, "spec.placement"),
    "no name": ({**binding(), "metadata": {}}, "metadata.name"),
    "long name": ({**binding(), "metadata": {"name": "a" * 10_000}}, "metadata.name"),
    "unicode name": ({**binding(), "metadata": {"name": "größe"}}, "metadata.name"),
    "foreign version": ({**binding(), "apiVersion": "v2"}, "apiVersion"),
    "resource name": (request(**{"a b": "1"}), "spec.replicaRequirements.resourceRequest[a b]"),
    "weight": (
        binding(
            placement={
                "replicaScheduling": {
                    "weightPreference": {
                        "staticWeightList": [{"targetCluster": {}, "weight": MAX_INT64}]
                    }
                }
            }
        ),
        WEIGHTS,
    ),
    "word": (
        binding(placement={"replicaScheduling": {"replicaDivisionPreference": "Best"}}),
        "spec.placement.replicaScheduling.replicaDivisionPreference",
    ),
    "spread": (
        binding(placement={"spreadConstraints": [{"spreadByField": "rack"}]}),
        "spec.placement.spreadConstraints[0].spreadByField",
    ),
    "spread twice": (
        binding(
            placement={"spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1}] * 2}
        ),
        "spec.placement.spreadConstraints[1].spreadByField",
    ),
    "cluster twice": (
        binding(clusters=[{"name": "member1", "replicas": 1}] * 2),
        "spec.clusters[1].name",
    ),
    "priority": (binding(schedulePriority={"priority": 2**40}), "spec.schedulePriority.priority"),
    "lease": (binding(leaseSeconds=0), "spec.leaseSeconds"),
}


@pytest.mark.parametrize(("document", "field"), BINDINGS.values(), ids=BINDINGS)
def test_a_binding_is_refused_by_field(
    plane: Plane, tmp_path: Path, document: dict[str, Any], field: str
) -> None:
    good = {**binding(), "metadata": {"namespace": "shop", "name": "good"}}
    file = tmp_path / "bindings.json"
    file.write_text(json.dumps([good, document]))
    message = message_from_document(
        {key: value for key, value in document.items() if key != "apiVersion"},
        resource_pb2.ResourceBinding,
    )
    message.api_version = document["apiVersion"]
    with plane.unharmed():
        refusal = plane.schedule(message)
        assert (refusal.code, refusal.reason) == (INVALID, "INVALID_REQUEST")
        assert field in refusal.violations
        assert "<" not in refusal.violations[field]
        # The good one before it is not decided either.
        assert f".{field}: " in told(plane.fedctl("schedule", "-f", str(file)))


DOCUMENTS: dict[str, tuple[Any, str]] = {
    "unknown field": (binding(replica=1), "spec.replica: ResourceBindingSpec has no such field"),
    "replicas 2^64": (binding(replicas=2**64), "spec.replicas: must be a whole number"),
    "replicas 1.5": (binding(replicas=1.5), "spec.replicas: must be a whole number"),
    "replicas as text": (binding(replicas="2"), "spec.replicas: must be a whole number"),
    "NUL": (
        {**BINDING, "metadata": {"name": "a\0b"}},
        "metadata.name: must not hold a NUL character",
    ),
    "half a character": (
        {**binding(), "metadata": {"name": "\ud800"}},
        "holds half of a surrogate pair",
    ),
    "time": (binding(rescheduleTriggeredAt="2026-02-30T00:00:00Z"), "rescheduleTriggeredAt"),
    "no kind": ({"metadata": {"name": "web"}}, "kind: is required"),
    "a scalar": (5, "must be an object with apiVersion and kind"),
    "nothing": ([], "files: hold nothing to schedule"),
}


@pytest.mark.parametrize(("document", "said"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_is_refused_before_anything_is_sent(
    plane: Plane, document: Any, said: str
) -> None:
    with plane.unharmed():
        assert said in told(plane.fedctl("schedule", "-f", "-", stdin=json.dumps(document)))


TEXTS: dict[str, tuple[bytes, str]] = {
    "open bracket": (b"kind: a\nb: ]", "-, line 2: is not YAML that can be read"),
    "tab": (b"a:\n\tb: 1", "-, line 2: is not YAML that can be read"),
    "NUL": (b"a: 1\nb: \0", "-, line 2: is not YAML that can be read: control characters"),
    "no UTF-8": (b"a: \xff", "-: is not UTF-8 text (byte 3)"),
    "key twice": (b"a: 1\na: 2", "-, line 2: is not YAML that can be read: key 'a' is there twice"),
    "a million brackets": (b"[" * 10**6, "is nested too deeply"),
    "a million objects": (b'{"a":' * 10**6, "is nested too deeply"),
    "a million dashes": (b"- " * 10**6, "is nested deeper than 100 levels"),
    "a bomb of aliases": (
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in b"bcdefghi"
        ),
        "holds more than 5000000 values, aliases expanded",
    ),
}


@pytest.mark.parametrize(("text", "said"), TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("verb", ["schedule", "apply", "simulate"])
def test_text_that_is_no_document_is_refused_by_its_line(
    plane: Plane, verb: str, text: bytes, said: str
) -> None:
    with plane.unharmed():
        assert said in told(plane.fedctl(verb, "-f", "-", stdin=text))


@pytest.mark.parametrize("verb", ["schedule", "apply", "simulate"])
def test_a_file_of_100_megabytes_is_not_read(plane: Plane, tmp_path: Path, verb: str) -> None:
    file = tmp_path / "large.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(100 * MEBIBYTE)
    with plane.unharmed():
        for path, size in ((file, 100 * MEBIBYTE), (Path("/dev/zero"), 16 * MEBIBYTE + 1)):
            assert f"{path}: is {size} bytes long" in told(plane.fedctl(verb, "-f", str(path)))


OPEN = str(MAX_INT64)
MODELS = "spec.resourceModels"
CLUSTERS: dict[str, tuple[dict[str, Any], str]] = {
    "overlap": (
        {"resourceModels": [grade(0, ("cpu", "0", "2")), grade(1, ("cpu", "1", OPEN))]},
        f"{MODELS}[1].ranges[0].min",
    ),
    "gap": (
        {"resourceModels": [grade(0, ("cpu", "0", "2")), grade(1, ("cpu", "3", OPEN))]},
        f"{MODELS}[1].ranges[0].min",
    ),
    "no MaxInt64": (
        {"resourceModels": [grade(0, ("cpu", "0", "2")), grade(1, ("cpu", "2", "8"))]},
        f"{MODELS}[1].ranges[0].max",
    ),
    "fifth resource": (
        {
            "resourceModels": [
                grade(
                    0,
                    *(
                        (name, "0", OPEN)
                        for name in ("cpu", "memory", "storage", "ephemeral-storage", "x.com/gpu")
                    ),
                )
            ]
        },
        f"{MODELS}[0].ranges[4].name",
    ),
    "grade twice": (
        {"resourceModels": [grade(0, ("cpu", "0", "2")), grade(0, ("cpu", "2", OPEN))]},
        f"{MODELS}[1].grade",
    ),
    "grade -1": ({"resourceModels": [grade(-1, ("cpu", "0", OPEN))]}, f"{MODELS}[0].grade"),
    "quantity": (
        {"resourceModels": [grade(0, ("cpu", "1 Gi", OPEN))]},
        f"{MODELS}[0].ranges[0].min",
    ),
    "zone and zones": ({"zone": "a", "zones": ["b"]}, "spec.zone"),
    "taint": ({"taints": [{"key": "a", "effect": "Never"}]}, "spec.taints[0].effect"),
}


@pytest.mark.parametrize(("spec", "field"), CLUSTERS.values(), ids=CLUSTERS)
def test_a_cluster_is_refused_by_field(plane: Plane, spec: dict[str, Any], field: str) -> None:
    document = {**CLUSTER, "metadata": {"name": "member1"}, "spec": spec}
    good = {**CLUSTER, "metadata": {"name": "member1"}, "spec": {"region": "elsewhere"}}
    stub: Any = ClustersStub(plane.channel)
    message = message_from_document(document, resource_pb2.Cluster)
    with plane.unharmed():
        refusal = plane.refused(
            stub.UpdateCluster, clusters_pb2.UpdateClusterRequest(cluster=message)
        )
        assert refusal.code is INVALID
        assert field in refusal.violations
        said = told(plane.fedctl("apply", "-f", "-", stdin=json.dumps([good, document])))
        assert f"Cluster/member1.{field}: " in said


@pytest.mark.parametrize("name", ["größe", "Member1", "a" * 49, "a.b", "-", "a\0", ""])
def test_a_name_that_no_cluster_may_have_gets_no_token(plane: Plane, name: str) -> None:
    stub: Any = ClustersStub(plane.channel)
    with plane.unharmed():
        asked = clusters_pb2.CreateJoinTokenRequest(cluster=name)
        refusal = plane.refused(stub.CreateJoinToken, asked)
        assert (refusal.code, list(refusal.violations)) == (INVALID, ["cluster"])
        arguments = ("join-token", "create", "--cluster", name)
        assert "cluster: " in told(plane.fedctl(*arguments))


@pytest.mark.parametrize("seconds", [0, -1, 604_801, MAX_INT64])
def test_a_token_lives_a_week_at_most(plane: Plane, seconds: int) -> None:
    stub: Any = ClustersStub(plane.channel)
    with plane.unharmed():
        asked = clusters_pb2.CreateJoinTokenRequest(cluster="member2", ttl_seconds=seconds)
        refusal = plane.refused(stub.CreateJoinToken, asked)
        assert (refusal.code, list(refusal.violations)) == (INVALID, ["ttlSeconds"])
        ttl = ("join-token", "create", "--cluster", "member2", "--ttl", f"{seconds}s")
        assert "ttl" in told(plane.fedctl(*ttl))


def test_a_second_cluster_does_not_take_a_name(plane: Plane) -> None:
    stub: Any = ClustersStub(plane.channel)
    made = plane.call(
        stub.CreateJoinToken, clusters_pb2.CreateJoinTokenRequest(cluster="member1")
    ).token
    enroll = clusters_pb2.EnrollClusterRequest
    with plane.unharmed():
        other = enroll(cluster="member1", token=made, cluster_uid="uid-2")
        refusal = plane.refused(stub.EnrollCluster, other, token="")
        assert refusal.code is grpc.StatusCode.ALREADY_EXISTS
        assert "'uid-1'" in refusal.message
        elsewhere = enroll(cluster="member2", token=made, cluster_uid="uid-2")
        refusal = plane.refused(stub.EnrollCluster, elsewhere, token="")
        assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
        long = enroll(cluster="member1", token=made, cluster_uid="u" * 10_000)
        assert plane.refused(stub.EnrollCluster, long, token="").code is INVALID
        fat = enroll(cluster="member1", token=made, cluster_uid="u" * MEBIBYTE)
        refusal = plane.refused(stub.EnrollCluster, fat, token="")
        assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    # No refusal has used the token up.
    again = enroll(cluster="member1", token=made, cluster_uid="uid-1")
    assert plane.call(stub.EnrollCluster, again, token="").credential


def test_files_do_not_name_a_cluster_twice(plane: Plane) -> None:
    member = {**CLUSTER, "metadata": {"name": "member1"}}
    documents = json.dumps([member, member, binding()])
    with plane.unharmed():
        said = told(plane.fedctl("simulate", "-f", "-", stdin=documents))
        assert said == "error: Cluster/member1.metadata.name: 'member1' is there already\n"
        said = told(plane.fedctl("estimate", "--request", "cpu=1", "--from", "-", stdin=documents))
        assert "'member1' is there already" in said


MANY_NAMES = {f"r{number}.{'x' * 40}": 1 for number in range(8_000)}
STREAMS: dict[str, tuple[list[ConnectRequest], grpc.StatusCode, str]] = {
    "nothing": ([], INVALID, "message"),
    "an empty message": ([said_by_member1()], INVALID, "message"),
    "a report without hello": ([said_by_member1(report=report())], INVALID, "message"),
    "two hellos": ([said_by_member1(hello=hello())] * 2, INVALID, "hello"),
    "hello of another cluster": ([ConnectRequest(cluster="member2", hello=hello())], DENIED, ""),
    "hello of epoch 0": ([said_by_member1(hello=hello(0))], INVALID, "hello.epoch"),
}
REPORTS: dict[str, tuple[Report, str]] = {
    "a sum that is wrong": (graded("m", {0: 3, 1: 2}, sequence=9), "gradeCounts"),
    "a sum beyond 64 bits": (graded("m", {0: MAX_INT64, 1: MAX_INT64}, sequence=9), "gradeCounts"),
    "grade -1": (graded("m", {-1: 4}, sequence=9), "gradeCounts[0].grade"),
    "a count below 0": (graded("m", {0: 5, 1: -1}, sequence=9), "gradeCounts[1].count"),
    "an amount below 0": (report(sequence=9, allocatable={"cpu": -1}), "allocatable[cpu]"),
    "a name that is none": (report(sequence=9, allocated={"c pu": 1}), "allocated[c pu]"),
    "nodes below 0": (report(sequence=9, total_nodes=-1), "totalNodes"),
    "a time beyond all": (
        report(sequence=9, snapshot_time=Timestamp(seconds=2**62)),
        "snapshotTime",
    ),
    "NUL": (report(sequence=9, content_hash="\0"), "contentHash"),
    "another epoch": (report(7, 9), "epoch"),
    "too much of it": (report(sequence=9, allocatable=MANY_NAMES), "report"),
}


@pytest.mark.parametrize(("messages", "code", "field"), STREAMS.values(), ids=STREAMS)
def test_a_stream_that_begins_wrongly_ends(
    plane: Plane, messages: list[ConnectRequest], code: grpc.StatusCode, field: str
) -> None:
    with plane.unharmed():
        refusal = plane.stream_end(*messages)
        assert refusal.code is code
        assert list(refusal.violations) == ([field] if field else [])


@pytest.mark.parametrize(("wrong", "field"), REPORTS.values(), ids=REPORTS)
def test_a_report_is_refused_by_field(plane: Plane, wrong: Report, field: str) -> None:
    with plane.unharmed():
        told = plane.refusals(said_by_member1(hello=hello()), said_by_member1(report=wrong))
        assert [each.kind for each in told] == ["report"]
        assert f"{field}: " in told[0].reason


def test_an_agent_speaks_for_its_own_cluster_only(plane: Plane) -> None:
    foreign = ConnectRequest(cluster="member2", report=report(sequence=9))
    with plane.unharmed():
        assert plane.stream_end(said_by_member1(hello=hello()), foreign).code is DENIED
        beat = Heartbeat(agent_time=Timestamp(seconds=-(2**62)), sequence=-1)
        (refusal,) = plane.refusals(said_by_member1(hello=hello()), said_by_member1(heartbeat=beat))
        assert "heartbeat.agentTime: " in refusal.reason
        assert "heartbeat.sequence: " in refusal.reason


def test_an_agent_that_says_too_much_spoils_no_list(plane: Plane) -> None:
    kinds = [resource_pb2.ApiResource(name="x" * 100, kind="y" * 100)] * 10_000
    fat = hello(api_enablements=[resource_pb2.ApiEnablement(group_version="v1", resources=kinds)])
    with plane.unharmed():
        assert "hello" in plane.stream_end(said_by_member1(hello=fat)).violations
