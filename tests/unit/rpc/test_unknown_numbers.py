"""Field numbers that nobody here knows: refused by number and place where callers count on them."""

from __future__ import annotations

from typing import Any

import grpc

from federation.rpc.large_requests import LARGE_BYTES
from federation.v1 import agents_pb2, scheduling_pb2
from lab.control_planes import RunningControlPlane, hello, refused
from lab.patience import PATIENCE_SECONDS
from tests.unit.rpc.test_gate import BIG, GUARDED, admin_header, raw

# Field 999, a number.
UNKNOWN = b"\xb8\x3e\x01"


async def test_a_field_number_that_nobody_knows_is_refused(running: RunningControlPlane) -> None:
    header = await admin_header(running)
    for path in GUARDED:
        refusal = await refused(raw(running, path, UNKNOWN, header))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT, path
        assert refusal.reason == "UNKNOWN_FIELD", path
        assert "field number 999" in refusal.message, path


async def test_an_unknown_number_is_told_with_where_it_was_also_in_a_large_request(
    running: RunningControlPlane,
) -> None:
    asked = scheduling_pb2.ScheduleRequest()
    asked.binding.spec.components.add()
    asked.binding.spec.components.add().MergeFromString(UNKNOWN)
    for note in ("", "x" * LARGE_BYTES):
        asked.binding.metadata.annotations["note"] = note
        payload = asked.SerializeToString()
        refusal = await refused(raw(running, BIG, payload, await admin_header(running)))
        assert list(refusal.violations) == ["binding.spec.components[1]"]


async def test_a_program_of_ours_may_be_newer(running: RunningControlPlane) -> None:
    enroll = "/federation.v1.Clusters/EnrollCluster"
    refusal = await refused(raw(running, enroll, UNKNOWN))
    assert refusal.reason != "UNKNOWN_FIELD", refusal
    agent = await running.enrolled("member1")
    newer = agents_pb2.ConnectRequest(cluster="member1", hello=hello())
    newer.hello.MergeFromString(UNKNOWN)
    call: Any = agent.agents.Connect(metadata=agent.metadata, timeout=PATIENCE_SECONDS)
    await call.write(newer)
    assert (await call.read()).WhichOneof("message") == "welcome"
    call.cancel()
