"""Field numbers that nobody here knows: refused by number and place where callers count on them."""

from __future__ import annotations

from typing import Any

import grpc

from federation.rpc.large_requests import LARGE_BYTES
from federation.v1 import agents_pb2, scheduling_pb2
from lab.control_planes import Plane, hello, refused
from lab.patience import PATIENCE_SECONDS
from tests.api.calls import GUARDED, header_of, raw

BIG = "/federation.v1.Scheduling/Schedule"
# Field 999, a number.
UNKNOWN = b"\xb8\x3e\x01"


async def test_a_field_number_that_nobody_knows_is_refused(api: Plane) -> None:
    header = header_of(api.admin)
    for path in GUARDED:
        refusal = await refused(raw(api, path, UNKNOWN, header))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT, path
        assert refusal.reason == "UNKNOWN_FIELD", path
        assert "field number 999" in refusal.message, path


async def test_an_unknown_number_is_told_with_where_it_was_also_in_a_large_request(
    api: Plane,
) -> None:
    asked = scheduling_pb2.ScheduleRequest()
    asked.binding.spec.components.add()
    asked.binding.spec.components.add().MergeFromString(UNKNOWN)
    for note in ("", "x" * LARGE_BYTES):
        asked.binding.metadata.annotations["note"] = note
        payload = asked.SerializeToString()
        refusal = await refused(raw(api, BIG, payload, header_of(api.admin)))
        assert list(refusal.violations) == ["binding.spec.components[1]"]


async def test_a_program_of_ours_may_be_newer(api: Plane) -> None:
    enroll = "/federation.v1.Clusters/EnrollCluster"
    refusal = await refused(raw(api, enroll, UNKNOWN))
    assert refusal.reason != "UNKNOWN_FIELD", refusal
    agent = await api.enrolled("member1")
    newer = agents_pb2.ConnectRequest(cluster="member1", hello=hello())
    newer.hello.MergeFromString(UNKNOWN)
    call: Any = agent.agents.Connect(metadata=agent.metadata, timeout=PATIENCE_SECONDS)
    await call.write(newer)
    assert (await call.read()).WhichOneof("message") == "welcome"
    call.cancel()
