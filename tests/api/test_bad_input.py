"""Wrong objects, texts, arguments and bytes, by gRPC and by fedctl.

Each time: the right code, the field by name, no row written, no stack trace.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from click.testing import CliRunner, Result
from google.protobuf.timestamp_pb2 import Timestamp

from federation.cli.__main__ import fedctl
from federation.codec.strict import message_from_document
from federation.v1.resource_pb2 import Cluster, ReplicaRequirements, ResourceBinding
from lab.control_planes import AgentStream, Plane, refused
from lab.databases import TABLES
from tests.api.calls import header_of, raw

INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
MEBIBYTE = 1 << 20
MAX_INT64 = 2**63 - 1
# Control planes write into these with nobody calling; and who was refused is recorded.
BEATING = {f"fedsched.{name}" for name in ("duty", "presence", "replica")}
AUDIT = "fedsched.audit"
ROWS = "SELECT (to_jsonb(one) - 'last_used_at' - 'last_used_from')::text FROM {} one"
BINDING = {
    "apiVersion": "work.karmada.io/v1alpha2",
    "kind": "ResourceBinding",
    "metadata": {"namespace": "shop", "name": "web"},
}
CLUSTER = {
    "apiVersion": "cluster.karmada.io/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "member1"},
}

Run = Callable[..., Any]


def binding(**spec: Any) -> dict[str, Any]:
    workload = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {**BINDING, "spec": {"resource": workload, "replicas": 2, "placement": {}, **spec}}


@pytest_asyncio.fixture(loop_scope="module")
async def run(api: Plane, member1: AgentStream) -> AsyncIterator[Run]:
    """fedctl, as the admin; after all of a test no row is another one."""
    del member1
    flags = ["--insecure", "--endpoint", str(api.plane.endpoint)]
    flags += ["--token-file", str(api.plane.admin_token_file)]

    async def told(*arguments: str, code: int = 1, stdin: str | bytes | None = None) -> str:
        """What it says on standard error: a few lines that begin with ``error:``, no trace."""
        given = [*flags, *arguments]
        result: Result = await asyncio.to_thread(CliRunner().invoke, fedctl, given, input=stdin)
        assert result.exit_code == code, (arguments, result.output)
        assert isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.stderr
        assert result.stdout == ""
        if code == 1:
            assert all(line.startswith("error: ") for line in result.stderr.splitlines())
        return result.stderr

    async with unharmed(api):
        yield told


@asynccontextmanager
async def unharmed(api: Plane) -> AsyncIterator[None]:
    before = await rows(api)
    yield
    after = await rows(api)
    changed = [(table, row) for table, found in after.items() for row in found ^ before[table]]
    assert not changed


async def rows(api: Plane) -> dict[str, set[str]]:
    tables = [row[0] for row in await api.sql(TABLES)]
    return {
        table: {row[0] for row in await api.sql(ROWS.format(table))}
        for table in tables
        if table not in BEATING and not table.startswith(AUDIT)
    }


FILES = {
    "two lines": b"a.b\nc.d",
    "no ASCII": "a.ü".encode(),
    "bytes": b"\xff\xfe",
    "NUL": b"a\0b",
}


async def test_a_token_file_that_holds_none_is_told_before_a_call(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "token"
    rule = "must be printable ASCII characters on one line"
    for content in FILES.values():
        file.write_bytes(content)
        said = await run("--token-file", str(file), "get", "clusters")
        assert said == f"error: --token-file {file}: {rule}\n"
    for token in ("x", "0" * 16 + "." + "0" * 43, "...", "a.b" * 2_000):
        file.write_text(token)
        assert "credential" in await run("--token-file", str(file), "get", "bindings")


WRONG_FLAGS: list[tuple[list[str], int, str]] = [
    (["--endpoint", "", "get", "clusters"], 1, "endpoint: is required"),
    (["--endpoint", "127.0.0.1:1", "get", "clusters"], 1, "connect"),
    (["--endpoint", "http://x:y", "get", "clusters"], 1, "http://x:y"),
    (["--timeout", "nan", "get", "clusters"], 2, "must be a span such as"),
    (["--timeout", "0", "get", "clusters"], 2, "--timeout"),
    (["schedule", "-f", "/no/such/file"], 1, "/no/such/file: cannot be read"),
    (["schedule", "-f", "/"], 1, "/: cannot be read: Is a directory"),
    (["scheduel"], 2, "scheduel"),
    (["explain", "shop/\udcff"], 2, "cannot be written as utf-8"),
    (["explain", "shop/none"], 1, "There is no binding 'shop/none'"),
    (["explain", "0" * 36], 1, "There is no decision"),
    (["delete", "binding", "/"], 1, "names no binding"),
    (["describe", "cluster", "none"], 1, "There is no cluster 'none'"),
    (["estimate"], 2, "--request"),
    (["estimate", "--request", "cpu"], 2, "'cpu' is not name=value"),
    (
        ["estimate", "--request", "cpu=1", "--clusters", "none"],
        1,
        "clusters[0]: there is no cluster 'none'",
    ),
    (["estimate", "--request", "cpu=1", "--source", "best"], 2, "--source"),
    (["join-token", "create", "--cluster", "größe"], 1, "cluster: "),
    (["join-token", "create", "--cluster", "member2", "--ttl", "0s"], 1, "ttl"),
    (["join-token", "create", "--cluster", "member2", "--ttl", "604801s"], 1, "ttl"),
]


async def test_wrong_arguments_are_told(run: Run) -> None:
    for arguments, code, said in WRONG_FLAGS:
        assert said in await run("--timeout", "5", *arguments, code=code), arguments


async def test_a_shape_is_refused_by_field(run: Run, api: Plane) -> None:
    for quantity in ("1 Gi", "-1", "1e", "9" * 30, ""):
        shapes = [{}, {"resource_request": {"memory": quantity}}]
        refusal = await refused(api.ask("EstimateReplicas", shapes=shapes))
        assert list(refusal.violations) == ["shapes[1].resourceRequest[memory]"]
        said = await run("estimate", "--request", f"memory={quantity}")
        assert said.startswith("error: request[memory]: ")


QUANTITIES = ["1 Gi", "-1", "1e", "9" * 30, "", "NaN", "0x10", "1e999", "\u0661", "one", "1.2.3"]
CPU = "spec.replicaRequirements.resourceRequest[cpu]"


def request(**amounts: Any) -> dict[str, Any]:
    return binding(replicaRequirements={"resourceRequest": amounts})


# Further rules of specs, and that each is told by every way in: tests/bad_bindings.py.
BINDINGS: list[tuple[dict[str, Any], str]] = [
    *((request(cpu=each), CPU) for each in QUANTITIES),
    ({**binding(), "metadata": {}}, "metadata.name"),
    ({**binding(), "metadata": {"name": "a" * 10_000}}, "metadata.name"),
    ({**binding(), "metadata": {"name": "größe"}}, "metadata.name"),
    ({**binding(), "apiVersion": "v2"}, "apiVersion"),
    (request(**{"a b": "1"}), "spec.replicaRequirements.resourceRequest[a b]"),
    (binding(clusters=[{"name": "member1", "replicas": 1}] * 2), "spec.clusters[1].name"),
    (binding(schedulePriority={"priority": 2**40}), "spec.schedulePriority.priority"),
    (binding(leaseSeconds=0), "spec.leaseSeconds"),
]


async def test_a_binding_is_refused_by_field_and_none_before_it_is_decided(
    run: Run, api: Plane, tmp_path: Path
) -> None:
    good = {**binding(), "metadata": {"namespace": "shop", "name": "good"}}
    file = tmp_path / "bindings.json"
    for document, field in BINDINGS:
        file.write_text(json.dumps([good, document]))
        message = message_from_document(
            {key: value for key, value in document.items() if key != "apiVersion"}, ResourceBinding
        )
        message.api_version = document["apiVersion"]
        refusal = await refused(api.ask("Schedule", binding=message))
        assert (refusal.code, refusal.reason) == (INVALID, "INVALID_REQUEST")
        assert field in refusal.violations
        assert "<" not in refusal.violations[field]
        assert f".{field}: " in await run("schedule", "-f", str(file))


DOCUMENTS: list[tuple[Any, str]] = [
    (binding(replica=1), "spec.replica: ResourceBindingSpec has no such field"),
    (binding(replicas=2**64), "spec.replicas: must be a whole number"),
    (binding(replicas=1.5), "spec.replicas: must be a whole number"),
    (binding(replicas="2"), "spec.replicas: must be a whole number"),
    ({**BINDING, "metadata": {"name": "a\0b"}}, "metadata.name: must not hold a NUL character"),
    ({**binding(), "metadata": {"name": "\ud800"}}, "holds half of a surrogate pair"),
    (binding(rescheduleTriggeredAt="2026-02-30T00:00:00Z"), "rescheduleTriggeredAt"),
    ({"metadata": {"name": "web"}}, "kind: is required"),
    (5, "must be an object with apiVersion and kind"),
    ([], "files: hold nothing to schedule"),
]
TEXTS: list[tuple[bytes, str]] = [
    (b"kind: a\nb: ]", "-, line 2: is not YAML that can be read"),
    (b"a:\n\tb: 1", "-, line 2: is not YAML that can be read"),
    (b"a: 1\nb: \0", "-, line 2: is not YAML that can be read: control characters"),
    (b"a: \xff", "-: is not UTF-8 text (byte 3)"),
    (b"a: 1\na: 2", "-, line 2: is not YAML that can be read: key 'a' is there twice"),
    (b"[" * 10**6, "is nested too deeply"),
    (b'{"a":' * 10**6, "is nested too deeply"),
    (b"- " * 10**6, "is nested deeper than 100 levels"),
    (
        # A bomb of aliases.
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in b"bcdefghi"
        ),
        "holds more than 5000000 values, aliases expanded",
    ),
]
VERBS = ("schedule", "apply", "simulate")


async def test_a_document_is_refused_before_anything_is_sent(run: Run) -> None:
    for document, said in DOCUMENTS:
        assert said in await run("schedule", "-f", "-", stdin=json.dumps(document)), document


@pytest.mark.parametrize("verb", VERBS)
async def test_text_that_is_no_document_is_refused_by_its_line(
    run: Run, verb: str, tmp_path: Path
) -> None:
    for text, said in TEXTS:
        assert said in await run(verb, "-f", "-", stdin=text), text[:20]
    # Nor is a file of 100 megabytes read, or one that has no end.
    file = tmp_path / "large.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(100 * MEBIBYTE)
    for path, size in ((file, 100 * MEBIBYTE), (Path("/dev/zero"), 16 * MEBIBYTE + 1)):
        assert f"{path}: is {size} bytes long" in await run(verb, "-f", str(path))


def grade(number: int, *ranges: tuple[str, str, str]) -> dict[str, Any]:
    names = ("name", "min", "max")
    return {"grade": number, "ranges": [dict(zip(names, each, strict=True)) for each in ranges]}


OPEN = str(MAX_INT64)
FIVE = ("cpu", "memory", "storage", "ephemeral-storage", "x.com/gpu")
# The grades of a model, and the field that is wrong below ``spec.resourceModels``.
MODELS: list[tuple[list[dict[str, Any]], str]] = [
    ([grade(0, ("cpu", "0", "2")), grade(1, ("cpu", "1", OPEN))], "[1].ranges[0].min"),
    ([grade(0, ("cpu", "0", "2")), grade(1, ("cpu", "3", OPEN))], "[1].ranges[0].min"),
    ([grade(0, ("cpu", "0", "2")), grade(1, ("cpu", "2", "8"))], "[1].ranges[0].max"),
    ([grade(0, *((name, "0", OPEN) for name in FIVE))], "[0].ranges[4].name"),
    ([grade(0, ("cpu", "0", "2")), grade(0, ("cpu", "2", OPEN))], "[1].grade"),
    ([grade(-1, ("cpu", "0", OPEN))], "[0].grade"),
    ([grade(0, ("cpu", "1 Gi", OPEN))], "[0].ranges[0].min"),
]
CLUSTERS: list[tuple[dict[str, Any], str]] = [
    *(({"resourceModels": model}, f"spec.resourceModels{field}") for model, field in MODELS),
    ({"zone": "a", "zones": ["b"]}, "spec.zone"),
    ({"taints": [{"key": "a", "effect": "Never"}]}, "spec.taints[0].effect"),
]


async def test_a_cluster_is_refused_by_field(run: Run, api: Plane) -> None:
    good = {**CLUSTER, "spec": {"region": "elsewhere"}}
    for spec, field in CLUSTERS:
        document = {**CLUSTER, "spec": spec}
        cluster = message_from_document(document, Cluster)
        refusal = await refused(api.ask("UpdateCluster", cluster=cluster))
        assert (refusal.code, field in refusal.violations) == (INVALID, True), (spec, refusal)
        said = await run("apply", "-f", "-", stdin=json.dumps([good, document]))
        assert f"Cluster/member1.{field}: " in said


async def test_files_do_not_name_a_cluster_twice(run: Run) -> None:
    documents = json.dumps([CLUSTER, CLUSTER, binding()])
    said = await run("simulate", "-f", "-", stdin=documents)
    assert said == "error: Cluster/member1.metadata.name: 'member1' is there already\n"
    said = await run("estimate", "--request", "cpu=1", "--from", "-", stdin=documents)
    assert "'member1' is there already" in said


async def test_what_leaves_no_room_in_an_answer_is_not_kept(run: Run, api: Plane) -> None:
    labels = {f"label{number}": "x" * 1000 for number in range(2_000)}
    message = message_from_document(binding(), ResourceBinding)
    message.metadata.labels.update(labels)
    refusal = await refused(api.ask("Schedule", binding=message))
    assert (refusal.code, list(refusal.violations)) == (INVALID, ["binding"])
    cluster = {"metadata": {"name": "member1", "labels": labels}}
    refusal = await refused(api.ask("UpdateCluster", cluster=cluster))
    assert (refusal.code, list(refusal.violations)) == (INVALID, ["cluster"])


async def test_questions_that_make_no_sense_are_refused(run: Run, api: Plane) -> None:
    cpu = ReplicaRequirements(resource_request={"cpu": "1"})
    numbers = {"highest_source": 99, "model_rule": -1, "merge": 2**31 - 1}
    for fields, asked in (
        ({"shapes"}, {"shapes": [ReplicaRequirements()] * 100_000}),
        ({"highestSource", "modelRule", "merge"}, {"shapes": [cpu], **numbers}),
        ({"clusters[1]"}, {"shapes": [cpu], "clusters": ["member1", "größe"]}),
        ({"clusters"}, {"shapes": [cpu], "clusters": map(str, range(100_000))}),
        ({"clusters[1]"}, {"shapes": [cpu], "clusters": ["member1", "member1"]}),
    ):
        refusal = await refused(api.ask("EstimateReplicas", **asked))
        assert (refusal.code, fields <= refusal.violations.keys()) == (INVALID, True), refusal
    for moment in (Timestamp(seconds=2**62), Timestamp(nanos=-1), Timestamp(nanos=2**31 - 1)):
        message = message_from_document(binding(), ResourceBinding)
        message.spec.reschedule_triggered_at.CopyFrom(moment)
        refusal = await refused(api.ask("Schedule", binding=message))
        assert list(refusal.violations) == ["spec.rescheduleTriggeredAt"]


def opaque(value: str) -> str:
    return base64.urlsafe_b64encode(value.encode()).decode()


FORGED = [
    *("x", "größe", opaque('["1.2","a","b","c"]'), opaque('["a","b","c"]'), opaque('["a","b"]')),
    *(opaque("5"), opaque("[1,2]"), opaque('["\\u0000"]'), opaque('["\\ud800","\\ud800"]')),
    *(opaque('["\\ud800"]'), opaque("[" * 40_000), opaque("9" * 5_000), "A" * 60_000),
    base64.urlsafe_b64encode(b"\xff\xfe").decode(),
]


async def test_forged_page_tokens_and_names_of_nothing_are_refused(run: Run, api: Plane) -> None:
    for method in ("ListClusters", "ListBindings"):
        for token in FORGED:
            refusal = await refused(api.ask(method, page_token=token))
            assert (refusal.code, list(refusal.violations)) == (INVALID, ["pageToken"]), token[:20]
        for size in (-1, 1001, -(2**31), 2**31 - 1):
            refusal = await refused(api.ask(method, page_size=size))
            assert (refusal.code, list(refusal.violations)) == (INVALID, ["pageSize"])
    for name in ("", "\0", "größe", "a" * 30_000, "a b", "../../etc"):
        for method, asked in (
            ("GetCluster", {"name": name}),
            ("GetBinding", {"namespace": name, "name": name}),
            ("DeleteBinding", {"name": name, "uid": name}),
            ("GetDecision", {"id": name}),
        ):
            assert (await refused(api.ask(method, **asked))).code in (INVALID, NOT_FOUND)


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


async def test_bytes_that_are_no_message_are_the_callers_fault(
    run: Run, api: Plane, member1: AgentStream
) -> None:
    payloads = (
        *(b"\xff" * 50, b"\x0a\x02\xff\xfe", b"\x0a\xff\xff\xff\xff\x0f", b"\x9b\x06" * 30_000),
        nested(2_000),
    )
    for method in (
        *("Clusters/CreateJoinToken", "Clusters/EnrollCluster", "Clusters/UpdateCluster"),
        *("Estimates/EstimateReplicas", "Scheduling/Schedule", "Scheduling/GetDecision"),
    ):
        path = f"/federation.v1.{method}"
        for payload in payloads:
            refusal = await refused(raw(api, path, payload, header_of(api.admin)))
            assert refusal.code is INVALID, (method, payload[:10])
    connect: Any = api.channel.stream_stream("/federation.v1.Agents/Connect")
    call = connect(iter([b"\xff" * 10]), metadata=member1.agent.metadata)
    assert (await refused(call.read())).code is INVALID
