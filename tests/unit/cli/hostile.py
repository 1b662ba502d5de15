"""A server whose every answer is well-formed, and hostile wherever it holds text.

Must not know the services: answers are made from their descriptors.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from federation.v1 import clusters_pb2, estimates_pb2, scheduling_pb2

HOSTILE = "x\x1b]0;owned\x07\x9b2J\u202e\u200b\r\nerror: forged\x85"
FILES = (clusters_pb2.DESCRIPTOR, estimates_pb2.DESCRIPTOR, scheduling_pb2.DESCRIPTOR)
QUANTITIES = frozenset(
    {"promised", "allocatable", "allocated", "allocating", "resource_request", "min", "max"}
)
# One of each number is enough, but pages must come to an end.
ENDS = frozenset({"next_page_token"})


def hostile(kind: Descriptor, depth: int = 8) -> Message:
    """A message with one of everything."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if field.name in ENDS or field.name == "positions" or depth == 0:
            continue
        _fill(message, field, depth)
    return message


def _fill(message: Any, field: FieldDescriptor, depth: int) -> None:
    kind = field.message_type
    if kind is None:
        value = _scalar(field)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    elif kind.GetOptions().map_entry:
        values = kind.fields_by_name["value"]
        value = "1" if field.name in QUANTITIES else _scalar(values)
        getattr(message, field.name)[HOSTILE] = value
    elif kind.full_name == "google.protobuf.Timestamp":
        if not field.is_repeated:
            getattr(message, field.name).FromSeconds(1_700_000_000)
    elif field.is_repeated:
        getattr(message, field.name).append(hostile(kind, depth - 1))
    else:
        getattr(message, field.name).CopyFrom(hostile(kind, depth - 1))


def _scalar(field: FieldDescriptor) -> Any:
    if field.type == FieldDescriptor.TYPE_STRING:
        return "1" if field.name in QUANTITIES else HOSTILE
    if field.type == FieldDescriptor.TYPE_ENUM:
        assert field.enum_type is not None
        return field.enum_type.values[1].number
    return {FieldDescriptor.TYPE_BYTES: b"x", FieldDescriptor.TYPE_BOOL: True}.get(field.type, 0)


class _Answers(grpc.GenericRpcHandler):
    def __init__(self, *, refuse: bool) -> None:
        self._refuse = refuse

    def service(self, details: Any) -> Any:
        _, service, name = details.method.split("/")
        method = next(
            file.services_by_name[service.rpartition(".")[2]].methods_by_name[name]
            for file in FILES
            if service.rpartition(".")[2] in file.services_by_name
        )
        requests = GetMessageClass(method.input_type)
        coding = {
            "request_deserializer": requests.FromString,
            "response_serializer": lambda answer: answer.SerializeToString(),
        }

        def one(_request: Any, context: grpc.ServicerContext) -> Message:
            if self._refuse:
                context.abort_with_status(_refusal())
            return hostile(method.output_type)

        def many(_request: Any, context: grpc.ServicerContext) -> Iterator[Message]:
            yield hostile(method.output_type)
            # A watch goes on after what another try may help.
            context.abort(grpc.StatusCode.PERMISSION_DENIED, HOSTILE)

        if method.server_streaming:
            return grpc.unary_stream_rpc_method_handler(many, **coding)
        return grpc.unary_unary_rpc_method_handler(one, **coding)


def _refusal() -> grpc.Status:
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field=HOSTILE, description=HOSTILE)
    status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=HOSTILE)
    status.details.add().Pack(bad)
    return rpc_status.to_status(status)


@contextmanager
def hostile_server(*, refuse: bool = False) -> Iterator[str]:
    """Its endpoint on this machine, in plain text."""
    server = grpc.server(ThreadPoolExecutor(4), handlers=[_Answers(refuse=refuse)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
