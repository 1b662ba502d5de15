"""A decision as it was recorded, with everything that it was made on, and the same made again.

Must not talk to the database. A packed trace is two compressed parts: what decisions on one
snapshot share (the clusters' names, their reports) with the version of both, and the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from federation.history.bodies import Body, inflated, read_body
from federation.history.packed_inputs import InputReader, KeptInputs
from federation.model.errors import PreconditionFailed
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.replay import DecisionInputs, Replay, replay
from federation.scheduler.trace import Trace


class SharedPart(Body, frozen=True):
    """What a replay needs of it."""

    clusters: tuple[str, ...]


class OwnPart(msgspec.Struct, frozen=True):
    """What a replay needs of it."""

    trace: dict[str, Any]
    inputs: KeptInputs | None = None


_SHARED = msgspec.msgpack.Decoder(SharedPart)
_OWN = msgspec.msgpack.Decoder(OwnPart, strict=False)


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, and the bodies of what it was made on by their names: all that a replay needs."""

    outcome: Outcome
    clusters: tuple[TargetCluster, ...]
    remainder: int
    reason: str
    trace: bytes
    bodies: dict[bytes, bytes]

    def replayed(self, reader: InputReader) -> Replay:
        """Decides again. Raises as ``InputReader.unpacked`` does, and PluginFailed; and
        PreconditionFailed where what it was made on was never kept.
        """
        trace, kept = unpacked(self.trace)
        if kept is None:
            raise PreconditionFailed("What it was made on is not kept.", reason="INPUTS_NOT_KEPT")
        inputs = reader.unpacked(kept, self.bodies)
        stored = Decision(
            outcome=self.outcome,
            clusters=self.clusters,
            remainder=self.remainder,
            reason=self.reason,
            trace=trace,
        )
        return replay(with_triggers(inputs, trace), stored, kept.refused)


def with_triggers(inputs: DecisionInputs, trace: Trace) -> DecisionInputs:
    """Inputs as they were: their triggers are kept in the trace."""
    surroundings = replace(inputs.surroundings, triggers=trace.triggers)
    return replace(inputs, surroundings=surroundings)


def unpacked(packed: bytes) -> tuple[Trace, KeptInputs | None]:
    """A trace, and what is kept with it of the decision's inputs, if any. Raises NewerBody."""
    body, rest = inflated(packed)
    shared, own = read_body(_SHARED, body, "traces"), _OWN.decode(inflated(rest)[0])
    return Trace.from_plain({"clusters": shared.clusters, **own.trace}), own.inputs


def inputs_of(packed: bytes) -> KeptInputs | None:
    """What is kept with a trace of the decision's inputs, if any. Raises NewerBody."""
    body, rest = inflated(packed)
    read_body(_SHARED, body, "traces")
    return _OWN.decode(inflated(rest)[0]).inputs
