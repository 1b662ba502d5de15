"""Wrong credentials, arguments, pages, numbers and bytes, sent to a running control plane.

Each time: the right code, the field by name, no row written, no stack trace, and the server lives.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from federation.codec.strict import message_from_document
from federation.v1 import clusters_pb2, estimates_pb2, resource_pb2, scheduling_pb2
from federation.v1.agents_pb2_grpc import AgentsStub
from federation.v1.clusters_pb2_grpc import ClustersStub
from federation.v1.estimates_pb2_grpc import EstimatesStub
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.control_planes import hello, refusal_of
from tests.e2e.planes import MEBIBYTE, SECONDS, Plane, binding, plane, said_by_member1, told

__all__ = ["plane"]

INVALID, DENIED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED


TOKENS = {
    "none": "",
    "no secret": "x",
    "unknown": "0" * 16 + "." + "0" * 43,
    "nothing but dots": "...",
    "very long": "a.b" * 2_000,
}


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_wrong_token_opens_nothing(plane: Plane, tmp_path: Path, token: str) -> None:
    stub: Any = SchedulingStub(plane.channel)
    message = message_from_document(binding(), resource_pb2.ResourceBinding)
    file = tmp_path / "token"
    file.write_text(token)
    with plane.unharmed():
        refusal = plane.refused(
            stub.Schedule, scheduling_pb2.ScheduleRequest(binding=message), token=token
        )
        assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
        said = told(plane.fedctl("--token-file", str(file), "get", "bindings"))
        assert "credential" in said


def test_a_credential_opens_only_what_it_is_for(plane: Plane) -> None:
    stub: Any = ClustersStub(plane.channel)
    agents: Any = AgentsStub(plane.channel)
    asked = clusters_pb2.ListClustersRequest()
    with plane.unharmed():
        refusal = plane.refused(stub.ListClusters, asked, token=plane.agent_credential)
        assert refusal.code is DENIED
        with pytest.raises(grpc.RpcError) as caught:
            list(plane.call(agents.Connect, iter([said_by_member1(hello=hello())])))
        assert refusal_of(caught.value).code is DENIED


FILES = {
    "two lines": b"a.b\nc.d",
    "no ASCII": "a.ü".encode(),
    "bytes": b"\xff\xfe",
    "NUL": b"a\0b",
}


@pytest.mark.parametrize("content", FILES.values(), ids=FILES)
def test_a_token_file_that_holds_none_is_told_before_a_call(
    plane: Plane, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    said = told(plane.fedctl("--token-file", str(file), "get", "clusters"))
    rule = "must be printable ASCII characters on one line"
    assert said == f"error: --token-file {file}: {rule}\n"


WRONG_FLAGS: dict[str, tuple[list[str], int, str]] = {
    "endpoint empty": (["--endpoint", "", "get", "clusters"], 1, "endpoint: is required"),
    "endpoint dead": (["--endpoint", "127.0.0.1:1", "get", "clusters"], 1, "connect"),
    "endpoint unparsable": (["--endpoint", "http://x:y", "get", "clusters"], 1, "http://x:y"),
    "timeout NaN": (["--timeout", "nan", "get", "clusters"], 1, "timeout: must be above 0"),
    "timeout 0": (["--timeout", "0", "get", "clusters"], 2, "--timeout"),
    "no such file": (["schedule", "-f", "/no/such/file"], 1, "/no/such/file: cannot be read"),
    "a folder": (["schedule", "-f", "/"], 1, "/: cannot be read: Is a directory"),
    "no such verb": (["scheduel"], 2, "scheduel"),
    "no UTF-8": (["explain", "shop/\udcff"], 2, "cannot be written as utf-8"),
    "no such binding": (["explain", "shop/none"], 1, "There is no binding 'shop/none'"),
    "no such decision": (["explain", "0" * 36], 1, "There is no decision"),
    "no binding's name": (["delete", "binding", "/"], 1, "names no binding"),
    "no such cluster": (["describe", "cluster", "none"], 1, "There is no cluster 'none'"),
    "nothing to estimate": (["estimate"], 2, "--request"),
    "pair without value": (["estimate", "--request", "cpu"], 2, "'cpu' is not name=value"),
    "unknown cluster": (
        ["estimate", "--request", "cpu=1", "--clusters", "none"],
        1,
        "clusters[0]: there is no cluster 'none'",
    ),
    "unknown level": (["estimate", "--request", "cpu=1", "--source", "best"], 2, "--source"),
}


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG_FLAGS.values(), ids=WRONG_FLAGS)
def test_wrong_arguments_are_told(plane: Plane, arguments: list[str], code: int, said: str) -> None:
    with plane.unharmed():
        assert said in told(plane.fedctl("--timeout", "5", *arguments), code=code)


@pytest.mark.parametrize("quantity", ["1 Gi", "-1", "1e", "9" * 30, ""])
def test_a_shape_is_refused_by_field(plane: Plane, quantity: str) -> None:
    stub: Any = EstimatesStub(plane.channel)
    shape = resource_pb2.ReplicaRequirements(resource_request={"memory": quantity})
    asked = estimates_pb2.EstimateReplicasRequest(
        shapes=[resource_pb2.ReplicaRequirements(), shape]
    )
    with plane.unharmed():
        refusal = plane.refused(stub.EstimateReplicas, asked)
        assert refusal.code is INVALID
        assert list(refusal.violations) == ["shapes[1].resourceRequest[memory]"]
        said = told(plane.fedctl("estimate", "--request", f"memory={quantity}"))
        assert said.startswith("error: request[memory]: ")


def test_questions_that_make_no_sense_are_refused(plane: Plane) -> None:
    stub: Any = EstimatesStub(plane.channel)
    shape = resource_pb2.ReplicaRequirements()
    ask = estimates_pb2.EstimateReplicasRequest
    numbers: Any = {"highest_source": 99, "model_rule": -1, "merge": 2**31 - 1}
    asked = [
        ({"shapes"}, ask()),
        ({"shapes"}, ask(shapes=[shape] * 100_000)),
        ({"highestSource", "modelRule", "merge"}, ask(shapes=[shape], **numbers)),
        ({"clusters[0]", "clusters[1]"}, ask(shapes=[shape], clusters=["none", "größe"])),
        ({"clusters"}, ask(shapes=[shape], clusters=map(str, range(100_000)))),
        ({"clusters[1]"}, ask(shapes=[shape], clusters=["member1", "member1"])),
    ]
    with plane.unharmed():
        for fields, question in asked:
            refusal = plane.refused(stub.EstimateReplicas, question)
            assert refusal.code is INVALID
            assert fields <= refusal.violations.keys()


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, 60.5, 1e300])
def test_a_wait_for_nodes_is_a_number_that_ends(plane: Plane, seconds: float) -> None:
    stub: Any = SchedulingStub(plane.channel)
    message = message_from_document(binding(), resource_pb2.ResourceBinding)
    asked = scheduling_pb2.ScheduleRequest(binding=message, node_timeout_seconds=seconds)
    with plane.unharmed():
        refusal = plane.refused(stub.Schedule, asked)
        assert (refusal.code, list(refusal.violations)) == (INVALID, ["nodeTimeoutSeconds"])


@pytest.mark.parametrize(
    "moment", [Timestamp(seconds=2**62), Timestamp(nanos=-1), Timestamp(nanos=2**31 - 1)]
)
def test_a_moment_that_no_calendar_has_is_refused(plane: Plane, moment: Timestamp) -> None:
    message = message_from_document(binding(), resource_pb2.ResourceBinding)
    message.spec.reschedule_triggered_at.CopyFrom(moment)
    with plane.unharmed():
        refusal = plane.schedule(message)
        assert (refusal.code, list(refusal.violations)) == (INVALID, ["spec.rescheduleTriggeredAt"])


def test_what_leaves_no_room_in_an_answer_is_not_kept(plane: Plane) -> None:
    stub: Any = ClustersStub(plane.channel)
    labels = {f"label{number}": "x" * 1000 for number in range(2_000)}
    message = message_from_document(binding(), resource_pb2.ResourceBinding)
    message.metadata.labels.update(labels)
    cluster = resource_pb2.Cluster(metadata=resource_pb2.ObjectMeta(name="member1", labels=labels))
    with plane.unharmed():
        refusal = plane.schedule(message)
        assert (refusal.code, list(refusal.violations)) == (INVALID, ["binding"])
        asked = clusters_pb2.UpdateClusterRequest(cluster=cluster)
        refusal = plane.refused(stub.UpdateCluster, asked)
        assert (refusal.code, list(refusal.violations)) == (INVALID, ["cluster"])


def opaque(value: str) -> str:
    return base64.urlsafe_b64encode(value.encode()).decode()


FORGED = {
    "rubbish": "x",
    "unicode": "größe",
    "another list's": opaque('["1.2","a","b","c"]'),
    "no version": opaque('["a","b","c"]'),
    "no version of clusters": opaque('["a","b"]'),
    "no list": opaque("5"),
    "no texts": opaque("[1,2]"),
    "NUL": opaque('["\\u0000"]'),
    "half characters": opaque('["\\ud800","\\ud800"]'),
    "half a character": opaque('["\\ud800"]'),
    "brackets": opaque("[" * 40_000),
    "digits": opaque("9" * 5_000),
    "bytes": base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    "60 kB": "A" * 60_000,
}


@pytest.mark.parametrize("token", FORGED.values(), ids=FORGED)
def test_a_forged_page_token_is_refused(plane: Plane, token: str) -> None:
    clusters: Any = ClustersStub(plane.channel)
    scheduling: Any = SchedulingStub(plane.channel)
    calls = (
        (clusters.ListClusters, clusters_pb2.ListClustersRequest(page_token=token)),
        (scheduling.ListBindings, scheduling_pb2.ListBindingsRequest(page_token=token)),
    )
    with plane.unharmed():
        for method, asked in calls:
            refusal = plane.refused(method, asked)
            assert (refusal.code, list(refusal.violations)) == (INVALID, ["pageToken"])


@pytest.mark.parametrize("size", [-1, 1001, -(2**31), 2**31 - 1])
def test_a_page_has_a_size(plane: Plane, size: int) -> None:
    clusters: Any = ClustersStub(plane.channel)
    scheduling: Any = SchedulingStub(plane.channel)
    with plane.unharmed():
        for method, asked in (
            (clusters.ListClusters, clusters_pb2.ListClustersRequest(page_size=size)),
            (scheduling.ListBindings, scheduling_pb2.ListBindingsRequest(page_size=size)),
        ):
            refusal = plane.refused(method, asked)
            assert (refusal.code, list(refusal.violations)) == (INVALID, ["pageSize"])


@pytest.mark.parametrize("name", ["", "\0", "größe", "a" * 30_000, "a b", "../../etc"])
def test_names_of_nothing_are_told_apart_from_faults(plane: Plane, name: str) -> None:
    clusters: Any = ClustersStub(plane.channel)
    scheduling: Any = SchedulingStub(plane.channel)
    calls = (
        (clusters.GetCluster, clusters_pb2.GetClusterRequest(name=name)),
        (scheduling.GetBinding, scheduling_pb2.GetBindingRequest(namespace=name, name=name)),
        (scheduling.DeleteBinding, scheduling_pb2.DeleteBindingRequest(name=name, uid=name)),
        (scheduling.GetDecision, scheduling_pb2.GetDecisionRequest(id=name)),
    )
    with plane.unharmed():
        for method, asked in calls:
            assert plane.refused(method, asked).code in (INVALID, grpc.StatusCode.NOT_FOUND)


def nested(levels: int) -> bytes:
    """A ScheduleRequest of messages within messages, deeper than any parser goes."""
    payload = b""
    for _ in range(levels):
        size, length = len(payload), b""
        while size >= 0x80:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        payload = b"\x0a" + length + bytes([size]) + payload
    return payload


METHODS = (
    "/federation.v1.Clusters/CreateJoinToken",
    "/federation.v1.Clusters/EnrollCluster",
    "/federation.v1.Clusters/UpdateCluster",
    "/federation.v1.Estimates/EstimateReplicas",
    "/federation.v1.Scheduling/Schedule",
    "/federation.v1.Scheduling/GetDecision",
)


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_message_are_the_callers_fault(plane: Plane, method: str) -> None:
    payloads = (
        b"\xff" * 50,
        b"\x0a\x02\xff\xfe",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x9b\x06" * 30_000,
    )
    with plane.unharmed():
        for payload in (*payloads, nested(2_000)):
            refusal = plane.refused(plane.channel.unary_unary(method), payload)
            assert refusal.code is INVALID, payload[:10]
        refusal = plane.refused(plane.channel.unary_unary(method), b"\x0a" * (5 * MEBIBYTE))
        assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_bytes_on_a_stream_are_the_agents_fault(plane: Plane) -> None:
    connect_raw: Any = plane.channel.stream_stream("/federation.v1.Agents/Connect")
    metadata = (("authorization", f"Bearer {plane.agent_credential}"),)
    with plane.unharmed(), pytest.raises(grpc.RpcError) as caught:
        list(connect_raw(iter([b"\xff" * 10]), metadata=metadata, timeout=SECONDS))
    assert refusal_of(caught.value).code is INVALID


def test_a_deadline_that_has_passed_decides_nothing(plane: Plane) -> None:
    stub: Any = SchedulingStub(plane.channel)
    message = message_from_document(binding(), resource_pb2.ResourceBinding)
    asked = scheduling_pb2.ScheduleRequest(binding=message)
    with plane.unharmed():
        for seconds in (0.0, -1.0):
            with pytest.raises(grpc.RpcError) as caught:
                stub.Schedule(
                    asked, metadata=(("authorization", f"Bearer {plane.token}"),), timeout=seconds
                )
            assert refusal_of(caught.value).code is grpc.StatusCode.DEADLINE_EXCEEDED
