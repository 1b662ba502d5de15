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
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import Default

from federation.codec.document_files import documents_of
from federation.codec.workloads import bindings_from_documents
from federation.rpc.served import SERVICES
from federation.v1.agents_pb2 import ConnectRequest
from lab.attack.target import Target, attacked_plane
from lab.callers import bearer
from lab.control_planes import hello, report
from lab.fuzz.decoders import ROOT
from lab.fuzz.fuzzing import FuzzTarget, mutated
from lab.fuzz.requests import nearly_right
from lab.patience import PATIENCE_SECONDS
from lab.processes import FamilyPeak, family_peak
from lab.programs import own_folder

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
# Of one request: a few, or many.
CHANGES: Final = (1, 2, 4, 16)
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
    right = [ConnectRequest(hello=hello()), ConnectRequest(report=report()), ConnectRequest()]

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
        message = nearly_right(ConnectRequest.DESCRIPTOR, chance, CHANGES, *right)
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
        message = nearly_right(descriptor, chance, CHANGES)
        for field in descriptor.fields:
            if field.message_type is BINDING.DESCRIPTOR and chance.random() < 0.2:
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
