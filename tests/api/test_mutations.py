"""Every method with requests that are nearly right: a caller's fault must never look like ours.

Methods are found in the descriptors, so that a new one is tried from its first day.
"""

from __future__ import annotations

import random
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

from federation.rpc.served import SERVICES
from lab.control_planes import Plane, refusal_of, report
from lab.fuzz.requests import nearly_right
from lab.patience import PATIENCE_SECONDS

REQUESTS = 60
# Clusters last: its methods take away what the others ask about. Agents speak on streams.
METHODS: dict[str, MethodDescriptor] = {
    f"{service}/{method.name}": method
    for service in sorted(SERVICES, key=lambda name: name.endswith("Clusters"))
    if not service.endswith(".Agents")
    for method in Default().FindServiceByName(service).methods
}
OURS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED}


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def member1(plane: Plane) -> None:
    async with plane.connected("member1", report=report()):
        pass


@pytest.mark.expected_errors("failover is frozen")
@pytest.mark.parametrize("name", METHODS)
async def test_no_request_is_the_servers_fault(plane: Plane, name: str) -> None:
    method = METHODS[name]
    answer = GetMessageClass(method.output_type)
    opened = plane.channel.unary_stream if method.server_streaming else plane.channel.unary_unary
    stub: Any = opened(
        f"/{name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    chance = random.Random(method.full_name)
    for _ in range(REQUESTS):
        request = nearly_right(method.input_type, chance, (1, 1, 2, 4))
        call = stub(request, metadata=plane.admin.metadata, timeout=PATIENCE_SECONDS)
        try:
            if method.server_streaming:
                await call.read()
                call.cancel()
            else:
                await call
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            assert refusal.code not in OURS, f"{refusal}\n{request}"
            assert refusal.reason, f"{refusal}\n{request}"
    assert (await plane.ask("GetFailover")).HasField("status")
