"""Traces and previews of decisions as small bodies, and back.

Must not talk to the database. The body of a trace is two compressed parts. Decisions on one
snapshot share the first: names and reports of clusters, and the version of both. The rest follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np

from federation.history.binding_rows import BINDINGS, BindingRow
from federation.history.bodies import Body, check_version, deflated, inflated, read_body
from federation.history.packed_inputs import (
    INPUTS,
    KeptInputs,
    Packed,
    SharedBodies,
)
from federation.history.recorded import OwnPart, SharedPart, read_own_part, trace_of
from federation.history.rows import DocumentPart, Rows
from federation.history.trace_rows import DECISIONS, TRACES, DecisionRow, part_of, plain_part_of
from federation.model.placement import Binding
from federation.model.reasons import Reason, stored_reason
from federation.model.reservations import PromiseCertificate
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.scarcity import short_of
from federation.scheduler.trace import Trace
from federation.services.threads import PACKING, Threads
from federation.services.values import ClusterPromise, ReportEvidence, Verdict

# Fewer clusters, in all traces together, are packed in less than 5 ms: not worth a thread.
CLUSTERS_PER_THREAD = 500


class EvidenceRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ReportEvidence``."""

    sequences: tuple[int, ...] = ()
    age_seconds: tuple[float, ...] = ()


EVIDENCE: Final = Rows(ReportEvidence, EvidenceRow, "evidence of decisions")


class _SharedPart(SharedPart, frozen=True, forbid_unknown_fields=True):
    evidence: EvidenceRow = EvidenceRow()


class PromiseColumns(msgspec.Struct, frozen=True):
    """Promises of a decision by the names of their fields."""

    cluster: Sequence[str]
    certificate: Sequence[PromiseCertificate]
    report_epoch: Sequence[int] = ()
    report_sequence: Sequence[int] = ()
    note: Sequence[str] = ()


class _OwnPart(OwnPart, frozen=True, forbid_unknown_fields=True):
    promises: PromiseColumns | None = None


_SHARED = msgspec.msgpack.Decoder(_SharedPart)
_OWN = msgspec.msgpack.Decoder(_OwnPart, strict=False, dec_hook=part_of)


def packed_traces(verdicts: Iterable[Verdict]) -> list[Packed]:
    """Pack trace, evidence, promises and inputs of verdicts, and parts that they share once."""
    packer = _Packer()
    return [packer.packed(verdict) for verdict in verdicts]


async def packed_off_loop(verdicts: Sequence[Verdict], threads: Threads = PACKING) -> list[Packed]:
    """Pack traces, in a thread if it takes long."""
    if sum(len(verdict.decision.trace.clusters) for verdict in verdicts) < CLUSTERS_PER_THREAD:
        return packed_traces(verdicts)
    return await threads.run(packed_traces, verdicts)


def unpacked_trace(packed: bytes) -> tuple[Trace, ReportEvidence, tuple[ClusterPromise, ...]]:
    """Unpack a trace; quotas come back rounded. Raises NewerBody."""
    body, rest = inflated(packed)
    shared, own = read_body(_SHARED, body, "traces"), read_own_part(_OWN, rest)
    trace = trace_of(own.trace, shared.clusters)
    return trace, EVIDENCE.unpack(shared.evidence), promises_of(own.promises)


def packed_inputs(verdict: Verdict) -> tuple[KeptInputs | None, tuple[SharedBodies, ...]]:
    """Return the stored part of a verdict's inputs, and the bodies that it names."""
    inputs = verdict.inputs
    if isinstance(inputs, DecisionInputs):
        return INPUTS.packed(inputs, verdict.refused)
    return inputs, ()


def promise_columns(promises: Sequence[ClusterPromise]) -> dict[str, Sequence[Any]] | None:
    """Return promises in the form of ``PromiseColumns``; None without any."""
    columns = zip(*promises, strict=True)
    return dict(zip(ClusterPromise._fields, columns, strict=True)) if promises else None


def promises_of(columns: PromiseColumns | None) -> tuple[ClusterPromise, ...]:
    if columns is None:
        return ()
    return tuple(
        map(
            ClusterPromise,
            columns.cluster,
            columns.certificate,
            columns.report_epoch or repeat(0),
            columns.report_sequence or repeat(0),
            columns.note or repeat(""),
        )
    )


class _Packer:
    """A packer of some traces, which caches their parts, because these are immutable."""

    def __init__(self) -> None:
        # Each holds its source, so that the identity is not given to another one.
        self._shared: dict[tuple[int, int], tuple[object, bytes]] = {}
        self._columns: dict[int, tuple[object, msgspec.Raw]] = {}

    def packed(self, verdict: Verdict) -> Packed:
        inputs, shared = packed_inputs(verdict)
        return Packed(self.shared_part(verdict) + self.own_part(verdict, inputs), shared)

    def shared_part(self, verdict: Verdict) -> bytes:
        clusters, evidence = verdict.decision.trace.clusters, verdict.evidence
        key = id(clusters), id(evidence)
        entry = self._shared.get(key)
        if entry is None:
            part = self._packed(
                _SharedPart(
                    v=_SharedPart.newest, clusters=clusters, evidence=EVIDENCE.pack(evidence)
                )
            )
            entry = self._shared[key] = (clusters, evidence), part
        return entry[1]

    def own_part(self, verdict: Verdict, inputs: KeptInputs | None) -> bytes:
        # The shared part has the clusters.
        trace = msgspec.structs.replace(TRACES.pack(verdict.decision.trace), clusters=())
        promises = promise_columns(verdict.promises)
        return self._packed({"trace": trace, "promises": promises, "inputs": inputs})

    def _packed(self, value: object) -> bytes:
        # An Encoder would refer to the packer, and only the garbage collector would free both.
        return deflated(msgspec.msgpack.encode(value, enc_hook=self._column))

    def _column(self, column: object) -> Any:
        """Encode an array; one that is read-only may be shared, and is cached."""
        if isinstance(column, Reason):
            return str(column)
        if not isinstance(column, np.ndarray) or column.flags.writeable:
            return plain_part_of(column)
        entry = self._columns.get(id(column))
        if entry is None:
            encoded = msgspec.Raw(msgspec.msgpack.encode(plain_part_of(column)))
            entry = self._columns[id(column)] = column, encoded
        return entry[1]


class _PreviewBody(Body, frozen=True):
    binding: BindingRow
    decision: DecisionRow
    evidence: EvidenceRow = EvidenceRow()
    promises: PromiseColumns | None = None
    wait: bool = True
    inputs: KeptInputs | None = None
    short_of: str = ""


_PREVIEWS = msgspec.json.Decoder(_PreviewBody, dec_hook=part_of)


def packed_preview(binding: Binding, verdict: Verdict, *, wait: bool) -> Packed:
    """Pack a binding, its decision, evidence and inputs as compressed JSON."""
    inputs, shared = packed_inputs(verdict)
    plain = {
        "v": _PreviewBody.newest,
        "binding": BINDINGS.pack(binding),
        "decision": DECISIONS.pack(verdict.decision),
        "evidence": EVIDENCE.pack(verdict.evidence),
        "promises": promise_columns(verdict.promises),
        "wait": wait,
        "inputs": inputs,
    }
    if lack := str(short_of(verdict.decision)):
        plain["short_of"] = lack
    return Packed(deflated(msgspec.json.encode(plain, enc_hook=plain_part_of)), shared)


def unpacked_preview(body: bytes) -> tuple[Binding, Verdict, bool]:
    """Unpack a preview. Raises NewerBody."""
    preview = read_body(_PREVIEWS, inflated(body)[0], "previews")
    verdict = Verdict(
        decision=DECISIONS.unpack(preview.decision),
        evidence=EVIDENCE.unpack(preview.evidence),
        promises=promises_of(preview.promises),
        inputs=preview.inputs,
        short_of=stored_reason(preview.short_of),
    )
    check_version(preview.binding.v, BindingRow.newest, "previews")
    return BINDINGS.unpack(preview.binding), verdict, preview.wait
