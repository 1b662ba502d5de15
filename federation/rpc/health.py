"""gRPC's health service, which refuses as our own services do.

Must not decide what is healthy.
"""

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health, health_pb2

from federation.model.errors import NotFound


class HealthServicer(health.aio.HealthServicer):
    """Anybody may ask it, and so nothing may stay of who asks of a service that is not there."""

    def __init__(self) -> None:
        super().__init__()
        self._services = {health.OVERALL_HEALTH}

    async def set(self, service: str, status: Any) -> None:
        self._services.add(service)
        await super().set(service, status)

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:
        if request.service not in self._services:
            raise NotFound(f"there is no service {request.service!r}")
        return await super().Check(request, context)
