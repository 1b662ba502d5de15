"""A recorded decision with its inputs, and the same made again.

Must not talk to the database. A packed trace is two compressed parts: what decisions on one
snapshot share (the clusters' names, their reports) with the version of both, and the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from threading import local
from typing import Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from federation.history.bodies import Body, inflated, read_body, refusal
from federation.history.packed_inputs import InputReader, KeptInputs
from federation.history.trace_rows import TRACES, TraceRow, part_of
from federation.model.errors import PreconditionFailed
from federation.model.estimate import Estimates
from federation.model.reasons import Reason, stored_reason, stored_reasons
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.replay import Replay, replay
from federation.scheduler.trace import Trace


class SharedPart(Body, frozen=True, forbid_unknown_fields=False):
    """The fields of the shared part that a replay needs."""

    clusters: tuple[str, ...]


class OwnPart(msgspec.Struct, frozen=True):
    """The fields of the own part that a replay needs."""

    trace: TraceRow
    inputs: KeptInputs | None = None


class _InputsPart(msgspec.Struct, frozen=True):
    """The own part without its trace."""

    inputs: KeptInputs | None = None


_SHARED = msgspec.msgpack.Decoder(SharedPart)
_OWN = msgspec.msgpack.Decoder(OwnPart, strict=False, dec_hook=part_of)
_INPUTS = msgspec.msgpack.Decoder(_InputsPart)

Part = TypeVar("Part", bound=OwnPart)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, and the bodies of its inputs by name: all that a replay needs."""

    outcome: Outcome
    clusters: tuple[TargetCluster, ...]
    remainder: int
    reason: str
    trace: bytes
    bodies: dict[bytes, bytes]

    def replayed(self, reader: InputReader) -> Replay:
        """Decide again.

        Raises as ``InputReader.unpacked`` does, PluginFailed, and PreconditionFailed if its inputs
        were never stored.
        """
        trace, inputs, stored_inputs = self.unpacked(reader)
        stored = Decision(
            outcome=self.outcome,
            clusters=self.clusters,
            remainder=self.remainder,
            reason=stored_reason(self.reason),
            trace=trace,
        )
        return replay(inputs, stored, stored_refusals(stored_inputs.refused))

    def unpacked(self, reader: InputReader) -> tuple[Trace, DecisionInputs, KeptInputs]:
        """Unpack the trace and the inputs, also as they are stored. Raises as ``replayed`` does."""
        trace, stored_inputs = unpacked(self.trace)
        if stored_inputs is None:
            raise PreconditionFailed("What it was made on is not kept.", reason="INPUTS_NOT_KEPT")
        inputs = reader.unpacked(stored_inputs, self.bodies)
        # Triggers are stored in the trace.
        surroundings = replace(inputs.surroundings, triggers=trace.triggers)
        return trace, replace(inputs, surroundings=surroundings), stored_inputs


def stored_refusals(refused: Mapping[str, str]) -> dict[str, Reason]:
    """Read the reasons of refused shares, by cluster."""
    return {name: stored_reason(text) for name, text in refused.items()}


def unpacked(packed: bytes) -> tuple[Trace, KeptInputs | None]:
    """Unpack a trace, and the stored inputs of its decision, if any. Raises NewerBody."""
    body, rest = inflated(packed)
    shared, own = read_body(_SHARED, body, "traces"), read_own_part(_OWN, rest)
    return trace_of(own.trace, shared.clusters), own.inputs


def read_own_part(decoder: msgspec.msgpack.Decoder[Part], packed: bytes) -> Part:
    """Return the part of a packed trace that follows the shared one. Raises UnknownKey."""
    try:
        return decoder.decode(inflated(packed)[0])
    except msgspec.ValidationError as error:
        raise refusal(error, "traces") from error


def trace_of(row: TraceRow, clusters: tuple[str, ...]) -> Trace:
    """Return a trace whose clusters' names were stored apart."""
    return TRACES.unpack(msgspec.structs.replace(row, clusters=clusters))


def inputs_of(packed: bytes) -> KeptInputs | None:
    """Return the stored inputs of a packed trace, if any. Raises NewerBody."""
    body, rest = inflated(packed)
    read_body(_SHARED, body, "traces")
    return _INPUTS.decode(inflated(rest)[0]).inputs


class _Checked(local):
    """The shared part that a thread checked last: decisions of one batch have the same."""

    part = b""


_CHECKED: Final = _Checked()


def _own_of(packed: bytes) -> bytes:
    """Return the part after the shared one. Raises NewerBody."""
    if _CHECKED.part and packed.startswith(_CHECKED.part):
        return packed[len(_CHECKED.part) :]
    body, rest = inflated(packed)
    read_body(_SHARED, body, "traces")
    _CHECKED.part = packed[: len(packed) - len(rest)]
    return rest


class _Shares(msgspec.Struct, frozen=True):
    position_k: list[int]
    share_k: list[int]


class _Columns(msgspec.Struct, frozen=True):
    available_c: list[int]
    source_c: list[int]
    bound_c: list[int]
    estimate_reasons: dict[int, str]


class _KnownTrace(msgspec.Struct, frozen=True):
    """The time, triggers, capacity and division of a decision."""

    now: float
    inputs: _Columns
    division: _Shares
    triggers: tuple[str, ...] = ()


class _KnownPart(msgspec.Struct, frozen=True):
    trace: _KnownTrace
    inputs: KeptInputs | None = None


_KNOWN = msgspec.msgpack.Decoder(_KnownPart, strict=False)


class KnownInputs(NamedTuple):
    """The inputs of a decision: time, triggers and capacity, and its shares before a refusal.

    Shares are by position in the fleet.
    """

    kept: KeptInputs
    now: float
    triggers: tuple[Reason, ...]
    available: Estimates
    shares: dict[int, int]


def known_inputs(packed: bytes) -> KnownInputs | None:
    """Read the inputs of a packed trace; None: none are stored. Raises NewerBody."""
    own = _KNOWN.decode(inflated(_own_of(packed))[0])
    if own.inputs is None:
        return None
    trace, columns = own.trace, own.trace.inputs
    return KnownInputs(
        kept=own.inputs,
        now=trace.now,
        triggers=tuple(map(stored_reason, trace.triggers)),
        available=Estimates(
            replicas_c=np.array(columns.available_c, dtype=np.int64),
            source_c=np.array(columns.source_c, dtype=np.int8),
            bound_c=np.array(columns.bound_c, dtype=np.int8),
            reasons=stored_reasons(columns.estimate_reasons),
        ),
        shares=dict(zip(trace.division.position_k, trace.division.share_k, strict=True)),
    )
