"""The table of operations, as a gRPC server serves it.

Must not know what an operation does. The gate, which each call passes, is an interceptor.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from federation.operations import (
    access,
    clusters,
    decisions,
    estimates,
    failover,
    plans,
    queue,
    scheduling,
    scoring,
    streams,
)
from federation.operations.services import Services
from federation.operations.table import OPERATIONS, Operation, OperationCall
from federation.rpc.calls import Context, Handler, caller_if_known, seconds_left
from federation.rpc.served import METHODS
from federation.services.values import Principal, PrincipalKind

# Importing a module fills the table.
MODULES = (
    *(access, clusters, decisions, estimates, failover),
    *(plans, queue, scheduling, scoring, streams),
)
# The caller of a method that takes no credential.
ANYBODY = Principal(kind=PrincipalKind.SUBJECT, name="somebody unknown")


def add_methods(
    server: grpc.aio.Server, services: Services, methods: Mapping[str, Callable[..., Any]]
) -> None:
    """Serve all operations, and these methods that stream."""
    handlers: defaultdict[str, dict[str, Handler]] = defaultdict(dict)
    for path, operation in OPERATIONS.items():
        _, service, method = path.split("/")
        handlers[service][method] = _unary_handler(operation, services)
    for path, behaviour in methods.items():
        _, service, method = path.split("/")
        handlers[service][method] = _stream_handler(path, behaviour)
    for service, by_method in handlers.items():
        generic = grpc.method_handlers_generic_handler(service, by_method)
        server.add_generic_rpc_handlers((generic,))
        server.add_registered_method_handlers(service, by_method)


def _unary_handler(operation: Operation, services: Services) -> Handler:
    async def serve(request: Any, context: Context) -> Any:
        seconds = seconds_left(context)
        call = OperationCall(
            caller=caller_if_known() or ANYBODY,
            services=services,
            ends_at=None if seconds is None else asyncio.get_running_loop().time() + seconds,
        )
        return await operation.perform(call, request)

    handler: Handler = grpc.unary_unary_rpc_method_handler(
        serve,
        request_deserializer=operation.request_type.FromString,
        response_serializer=operation.response_type.SerializeToString,
    )
    return handler


def _stream_handler(path: str, behaviour: Callable[..., Any]) -> Handler:
    method = METHODS[path]
    make: Any = grpc.unary_stream_rpc_method_handler
    if method.client_streaming:
        make = grpc.stream_stream_rpc_method_handler
    handler: Handler = make(
        behaviour,
        request_deserializer=GetMessageClass(method.input_type).FromString,
        response_serializer=GetMessageClass(method.output_type).SerializeToString,
    )
    return handler
