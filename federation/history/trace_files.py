"""Traces: recorded decisions in one file, with everything that makes them again.

A file is a magic line, then frames: a head of fixed size, and a compressed body. The first names
the version of the writer, the last proves that nothing is missing. Frames between them can be read
alone. Must not trust a file: cut, damaged, newer or too large ones are refused by name.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from federation.history.bodies import Body, DamagedBody, NewerBody, deflated, inflated, read_body
from federation.history.recorded import Recorded
from federation.history.workload_rows import TARGETS, TargetRow
from federation.model.errors import InvalidRequest, LimitExceeded
from federation.model.placement import binding_key
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome

MAGIC: Final = b"fedsched trace\n"
# The size of one frame in the file; those that we write have a tenth of it.
MAX_FRAME_BYTES: Final = 32 << 20
MAX_FRAMES: Final = 200_000
_HEADER, _DECISIONS, _END = b"head", b"dcsn", b"end."
# Kind, bytes and CRC-32 of the body, times of the first and last decision in microseconds since
# 1970, and the number of decisions.
_HEAD: Final = struct.Struct("!4sIIqqI")


class TraceHeader(Body, frozen=True, forbid_unknown_fields=False):
    """The span that was exported, in Unix seconds; 0: unlimited."""

    since: float = 0.0
    until: float = 0.0


class TracedDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision of a trace; ``at`` in microseconds since 1970."""

    id: str
    namespace: str
    name: str
    at: int
    outcome: Outcome
    clusters: tuple[TargetRow, ...] = ()
    remainder: int = 0
    reason: str = ""
    trace: bytes

    @property
    def key(self) -> str:
        """The key of its binding."""
        return binding_key(self.namespace, self.name)

    @property
    def targets(self) -> tuple[TargetCluster, ...]:
        """Its shares."""
        return tuple(map(TARGETS.unpack, self.clusters))

    def recorded(self, bodies: Mapping[bytes, bytes]) -> Recorded:
        """Return it with the bodies of its inputs."""
        return Recorded(
            outcome=self.outcome,
            clusters=self.targets,
            remainder=self.remainder,
            reason=self.reason,
            trace=self.trace,
            bodies=dict(bodies),
        )


class TracedDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """A binding that was deleted; ``at`` in microseconds since 1970."""

    namespace: str
    name: str
    at: int


class TraceChunk(Body, frozen=True, forbid_unknown_fields=False):
    """Decisions in the order of their times, and the bodies of their inputs, by name.

    ``deletions`` came before the last of them, and not before the decisions of the last chunk.
    """

    decisions: tuple[TracedDecision, ...]
    bodies: dict[bytes, bytes]
    deletions: tuple[TracedDeletion, ...] = ()


class TraceFrame(NamedTuple):
    """The position of a chunk in its file, and a summary of it."""

    offset: int
    size: int
    crc: int
    first_at: int
    last_at: int
    decisions: int


_HEADERS: Final = msgspec.msgpack.Decoder(TraceHeader)
_CHUNKS: Final = msgspec.msgpack.Decoder(TraceChunk)
END: Final = _HEAD.pack(_END, 0, 0, 0, 0, 0)


def beginning(header: TraceHeader) -> bytes:
    """Return the beginning of a trace; chunks follow, and ``END``."""
    return MAGIC + _framed(_HEADER, header, 0, 0, 0)


def chunk_bytes(chunk: TraceChunk) -> bytes:
    """Encode a chunk of at least one decision. For large fleets this takes long."""
    first, last = chunk.decisions[0], chunk.decisions[-1]
    return _framed(_DECISIONS, chunk, first.at, last.at, len(chunk.decisions))


def _framed(kind: bytes, body: object, first_at: int, last_at: int, decisions: int) -> bytes:
    packed = deflated(msgspec.msgpack.encode(body))
    crc = zlib.crc32(packed)
    return _HEAD.pack(kind, len(packed), crc, first_at, last_at, decisions) + packed


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace on disk: its header, and the positions of its chunks."""

    path: Path
    header: TraceHeader
    frames: tuple[TraceFrame, ...]

    @classmethod
    def opened(cls, path: Path) -> TraceFile:
        """Read the heads of all frames, and no chunk.

        Raises InvalidRequest if it is no whole trace, or a newer one, and OSError.
        """
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise InvalidRequest.of(str(path), "is not a trace of fedsched")
            size = path.stat().st_size
            kind, first = _head(file, path, size)
            if kind != _HEADER:
                raise _damaged(path, "does not begin with a header")
            try:
                header = read_body(_HEADERS, _body(_packed(file, first), path, first), "traces")
            except NewerBody as error:
                raise InvalidRequest.of(
                    str(path),
                    f"is a trace of version {error.version}, which a newer release wrote: this "
                    f"one reads version {TraceHeader.newest} and older",
                ) from error
            except msgspec.MsgspecError as error:
                raise _damaged(path, f"its header cannot be read: {error}") from error
            return cls(path, header, tuple(_frames(file, path, size)))

    @property
    def unindexed(self) -> TraceFile:
        """The file without its frames, for other processes, which get frames one by one."""
        return TraceFile(self.path, self.header, ())

    @property
    def decisions(self) -> int:
        return sum(frame.decisions for frame in self.frames)

    def chunk(self, frame: TraceFrame) -> TraceChunk:
        """Read a chunk. Raises InvalidRequest, and OSError."""
        with self.path.open("rb") as file:
            return _chunk(self.path, frame, _packed(file, frame))

    def carried(self, frames: Iterable[TraceFrame]) -> CarriedTrace:
        """Return these chunks with their bytes. Raises OSError."""
        with self.path.open("rb") as file:
            return CarriedTrace(self.path, {frame.offset: _packed(file, frame) for frame in frames})

    def chunks(self, frames: Iterable[TraceFrame] | None = None) -> Iterator[TraceChunk]:
        """Yield the chunks of these frames, or of all. Raises as ``chunk`` does."""
        return map(self.chunk, self.frames if frames is None else frames)


@dataclass(frozen=True, slots=True)
class CarriedTrace:
    """Some chunks of a trace with their bytes, for machines without the file."""

    path: Path
    packed: Mapping[int, bytes]

    def chunk(self, frame: TraceFrame) -> TraceChunk:
        """Read one of the chunks. Raises InvalidRequest."""
        return _chunk(self.path, frame, self.packed[frame.offset])


def _frames(file: BinaryIO, path: Path, size: int) -> Iterator[TraceFrame]:
    """Yield the frames after the header. Raises InvalidRequest."""
    count = 0
    while True:
        kind, frame = _head(file, path, size)
        if kind == _END:
            break
        if kind != _DECISIONS:
            raise _damaged(path, f"at byte {frame.offset} is neither a chunk nor the end")
        count += 1
        if count > MAX_FRAMES:
            raise InvalidRequest.of(str(path), f"has more than {MAX_FRAMES} chunks")
        file.seek(frame.size, 1)
        yield frame
    if file.tell() != size:
        raise _damaged(path, "goes on after its end")


def _head(file: BinaryIO, path: Path, size: int) -> tuple[bytes, TraceFrame]:
    """Read the next head, whose body the file has whole. Raises InvalidRequest."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise _cut(path, size)
    kind, *fields = _HEAD.unpack(head)
    frame = TraceFrame(file.tell(), *fields)
    if frame.size > MAX_FRAME_BYTES:
        rule = f"has a chunk of {frame.size} bytes, and {MAX_FRAME_BYTES} are read at most"
        raise InvalidRequest.of(str(path), rule)
    if frame.offset + frame.size > size:
        raise _cut(path, size)
    return kind, frame


def _packed(file: BinaryIO, frame: TraceFrame) -> bytes:
    file.seek(frame.offset)
    return file.read(frame.size)


def _chunk(path: Path, frame: TraceFrame, packed: bytes) -> TraceChunk:
    """Decode a chunk. Raises InvalidRequest."""
    try:
        chunk = read_body(_CHUNKS, _body(packed, path, frame), "chunks")
    except (msgspec.MsgspecError, NewerBody) as error:
        raise _damaged(path, f"what is at byte {frame.offset}: {error}") from error
    if len(chunk.decisions) != frame.decisions:
        raise _damaged(path, f"the head at byte {frame.offset} counts other decisions")
    return chunk


def _body(packed: bytes, path: Path, frame: TraceFrame) -> bytes:
    """Check and decompress a body. Raises InvalidRequest."""
    if zlib.crc32(packed) != frame.crc:
        raise _damaged(path, f"the checksum of what is at byte {frame.offset} is another one")
    try:
        return inflated(packed)[0]
    except LimitExceeded as error:
        rule = f"at byte {frame.offset}: {error}"
        raise InvalidRequest.of(str(path), rule) from error
    except DamagedBody as error:
        raise _damaged(path, f"what is at byte {frame.offset}: {error}") from error


def _cut(path: Path, size: int) -> InvalidRequest:
    rule = f"was cut: it ends in the middle, after {size} bytes; export it again"
    return InvalidRequest.of(str(path), rule)


def _damaged(path: Path, why: str) -> InvalidRequest:
    return InvalidRequest.of(str(path), f"is damaged: {why}")
