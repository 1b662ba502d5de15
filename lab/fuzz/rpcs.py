"""Every rpc of a control plane of its own, and the stream of an agent, over real sockets.

A request is refused with whatever code says what is wrong with it; that something within went
wrong, or that nothing answers any more, is what must not be.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from federation.codec.document_files import documents_of
from federation.codec.workloads import bindings_from_documents
from federation.rpc.served import SERVICES
from federation.v1.agents_pb2 import ConnectRequest
from lab.attack.target import Target, attacked_plane
from lab.callers import bearer
from lab.control_planes import hello, report
from lab.fuzz.decoders import ROOT
from lab.fuzz.fuzzing import FuzzTarget, mutated
from lab.patience import PATIENCE_SECONDS
from lab.processes import FamilyPeak, family_peak
from lab.programs import own_folder

# By how a field's name ends: what it could be.
PLAUSIBLE = {
    "kind": ("Deployment", "Job"),
    "api_version": ("apps/v1", "batch/v1"),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Equal", "Gt", "Lt"),
    "effect": ("NoSchedule", "NoExecute", "PreferNoSchedule"),
    "replica_scheduling_type": ("Divided", "Duplicated"),
    "replica_division_preference": ("Weighted", "Aggregated"),
    "spread_by_field": ("cluster", "region", "zone", "provider"),
    "dynamic_weight": ("AvailableReplicas",),
    "scheduler_name": ("", "default-scheduler"),
    "resource_request": ("500m", "1", "1Gi", "2"),
}
NAMES = ("web", "shop", "member1", "cpu", "memory", "a-1", "1")
TEXTS = (
    *("", "-1", "1e99", "9" * 30 + "Ei", "NaN", "A" * 254, "\u00e9", "\u202e", "\x1b[31m", "a\nb"),
    *("../..", "'; --", "<script>", "%n", "*", "/", "a/b/c", "nvidia.com/gpu", "{}", "\x00"),
)
SMALL = (0, 1, 2, 3, 10)
NUMBERS = (-1, 1000, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 2**64 - 1)
FLOATS = (-1.0, 0.1, 1e308, float("inf"), float("-inf"), float("nan"), 5e-324)
DEPTH = 7
WIDTHS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}
REALS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


class Filler:
    """Fills messages: some with a few fields that could be, some with many that could not."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._density = chance.choice([0.05, 0.15, 0.3, 0.5])
        self._hostility = chance.choice([0.0, 0.02, 0.1, 0.5])

    def filled(self, descriptor: Descriptor, depth: int = DEPTH) -> Message:
        """A new message of a type."""
        message: Message = GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if self._chance.random() < self._density and (field.message_type is None or depth):
                self._fill(message, field, depth - 1)
        return message

    def _fill(self, message: Any, field: Any, depth: int) -> None:
        inner = field.message_type
        if inner is not None and inner.GetOptions().map_entry:
            self._fill_map(getattr(message, field.name), field, depth)
        elif field.is_repeated:
            for _ in range(self._chance.choice([1, 1, 2, 7])):
                value = self._plain(field) if inner is None else self.filled(inner, depth)
                getattr(message, field.name).append(value)
        elif inner is not None:
            getattr(message, field.name).CopyFrom(self.filled(inner, depth))
        else:
            setattr(message, field.name, self._plain(field))

    def _fill_map(self, entries: Any, field: Any, depth: int) -> None:
        value = field.message_type.fields_by_name["value"]
        for _ in range(self._chance.choice([1, 2, 5])):
            key = self._plain(field.message_type.fields_by_name["key"])
            if value.message_type is None:
                entries[key] = self._plain(value, field.name)
            else:
                entries[key].CopyFrom(self.filled(value.message_type, depth))

    def _plain(self, field: Any, name: str = "") -> Any:
        chance, is_hostile = self._chance, self._chance.random() < self._hostility
        if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
            return chance.random() < 0.5
        if field.cpp_type in REALS:
            return chance.choice(FLOATS if is_hostile else (0.0, 1.0, 30.0))
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return chance.choice(TEXTS if is_hostile else PLAUSIBLE.get(name or field.name, NAMES))
        if field.type == FieldDescriptor.TYPE_BYTES:
            return chance.randbytes(chance.choice([0, 1, 16, 300]))
        if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM and not is_hostile:
            return chance.choice(field.enum_type.values).number
        least, most = WIDTHS[field.cpp_type]
        numbers = NUMBERS if is_hostile else SMALL
        return chance.choice([number for number in numbers if least <= number <= most])


# What a watch says first comes at once, if anything comes.
LISTENING_SECONDS: Final = 0.3
# That nothing answers is told from a refusal too.
FAULTS: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    }
)
POOL: Final = Default()
EXAMPLES: Final = [ROOT / "examples" / name for name in ("deployment.yaml", "policy.yaml")]
(BINDING,) = bindings_from_documents(documents_of(map(str, EXAMPLES)))
AGENTS: Final = 20
# What stands in an input for who says it: as long as the names, so that it stays a message.
ITSELF: Final = b"fuzzed-??"
# Has a target of its own.
ALONE: Final = frozenset({"/federation.v1.Agents/Connect"})


@contextmanager
def attacked_rpcs() -> Iterator[Sequence[FuzzTarget]]:
    """With a control plane and one cluster; gone afterwards."""
    with (
        own_folder("fuzz") as folder,
        attacked_plane(folder, tls=False) as target,
        target.channel() as channel,
        family_peak(target.pid) as peak,
    ):
        yield [*_rpcs(target, channel, peak), _agent(target, channel, peak)]


def _rpcs(target: Target, channel: grpc.Channel, peak: FamilyPeak) -> Iterator[FuzzTarget]:
    for service in SERVICES:
        for method in POOL.FindServiceByName(service).methods:
            path = f"/{service}/{method.name}"
            if path in ALONE:
                continue
            yield FuzzTarget(
                name=f"{method.containing_service.name}.{method.name}",
                take=_asked(channel, path, target.metadata, is_watch=method.server_streaming),
                make=_requests(method.input_type),
                refusals=(Refused,),
                peak_mebibytes=peak.mebibytes,
            )


def _agent(target: Target, channel: grpc.Channel, peak: FamilyPeak) -> FuzzTarget:
    """What agents say after their hello and a report; by turns, as each may dial twice a second."""
    names = [f"fuzzed-{number:02}" for number in range(AGENTS)]
    credentials = {name: bearer(target.enrolled(name)) for name in names}
    turns = itertools.cycle(names)
    connect = _plain(channel.stream_stream, "/federation.v1.Agents/Connect")

    def take(content: bytes) -> None:
        name = next(turns)
        said = [
            ConnectRequest(cluster=name, hello=hello()).SerializeToString(),
            ConnectRequest(cluster=name, report=report(nodes=3)).SerializeToString(),
            content.replace(ITSELF, name.encode()),
        ]
        with _refusals():
            for _ in connect(iter(said), metadata=credentials[name], timeout=PATIENCE_SECONDS):
                pass

    def named(chance: random.Random) -> bytes:
        message: Any = Filler(chance).filled(ConnectRequest.DESCRIPTOR)
        message.cluster = chance.choice([*[ITSELF.decode()] * 3, "innocent", ""])
        return mutated([message.SerializeToString()], chance)

    return FuzzTarget(
        name="Agents.Connect",
        take=take,
        make=named,
        refusals=(Refused,),
        peak_mebibytes=peak.mebibytes,
    )


class Refused(Exception):
    """The control plane said what is wrong with the request."""


def _requests(descriptor: Descriptor) -> Callable[[random.Random], bytes]:
    """Messages as they could be, whole ones of the examples among them; some with broken bytes."""

    def make(chance: random.Random) -> bytes:
        message = Filler(chance).filled(descriptor)
        for field in descriptor.fields:
            if field.message_type is BINDING.DESCRIPTOR and chance.random() < 0.7:
                given = getattr(message, field.name)
                (given.add() if field.is_repeated else given).MergeFrom(BINDING)
        whole = message.SerializeToString()
        return whole if chance.random() < 0.7 else mutated([whole], chance)

    return make


def _asked(
    channel: grpc.Channel, path: str, metadata: Sequence[tuple[str, str]], *, is_watch: bool
) -> Callable[[bytes], object]:
    if not is_watch:
        call = _plain(channel.unary_unary, path)

        def take(content: bytes) -> None:
            with _refusals():
                call(content, metadata=metadata, timeout=PATIENCE_SECONDS)

        return take
    watch = _plain(channel.unary_stream, path)

    def listen(content: bytes) -> None:
        with _refusals(grpc.StatusCode.DEADLINE_EXCEEDED):
            for _ in watch(content, metadata=metadata, timeout=LISTENING_SECONDS):
                pass

    return listen


def _plain(kind: Callable[..., Any], path: str) -> Any:
    """A method that takes and gives bytes as they are."""
    return kind(path, request_serializer=None, response_deserializer=None)


@contextmanager
def _refusals(*taken: grpc.StatusCode) -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        if error.code() in taken:
            return
        if error.code() in FAULTS:
            raise AssertionError(f"{error.code().name}: {error.details()}") from error
        raise Refused(error.details()) from error
