"""Traces and previews of decisions as small bodies, and back.

Must not talk to the database. The body of a trace is two compressed parts: what decisions on one snapshot share
(the clusters' names, their reports) with the version of both, and the rest of the trace.
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
    """The trace, the evidence, the promises and the inputs of each; what several share is packed
    once.
    """
    packer = _Packer()
    return [packer.packed(each) for each in verdicts]


async def packed_off_loop(verdicts: Sequence[Verdict], threads: Threads = PACKING) -> list[Packed]:
    """The same, in a thread where it takes long."""
    if sum(len(each.decision.trace.clusters) for each in verdicts) < CLUSTERS_PER_THREAD:
        return packed_traces(verdicts)
    return await threads.run(packed_traces, verdicts)


def unpacked_trace(packed: bytes) -> tuple[Trace, ReportEvidence, tuple[ClusterPromise, ...]]:
    """What ``packed_traces`` made this of; quotas come back rounded. Raises NewerBody."""
    body, rest = inflated(packed)
    shared, own = read_body(_SHARED, body, "traces"), read_own_part(_OWN, rest)
    trace = trace_of(own.trace, shared.clusters)
    return trace, EVIDENCE.unpack(shared.evidence), promises_of(own.promises)


def packed_inputs(verdict: Verdict) -> tuple[KeptInputs | None, tuple[SharedBodies, ...]]:
    """What a verdict keeps of its inputs, and the bodies that it names."""
    inputs = verdict.inputs
    if isinstance(inputs, DecisionInputs):
        return INPUTS.packed(inputs, verdict.refused)
    return inputs, ()


def promise_columns(promises: Sequence[ClusterPromise]) -> dict[str, Sequence[Any]] | None:
    """As ``PromiseColumns`` has them; None without any."""
    if not promises:
        return None
    return {
        "cluster": [each.cluster for each in promises],
        "certificate": [each.certificate for each in promises],
        "report_epoch": [each.report_epoch for each in promises],
        "report_sequence": [each.report_sequence for each in promises],
        "note": [each.note for each in promises],
    }


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
    """Packs some traces, and remembers the parts that came before: their values are immutable."""

    def __init__(self) -> None:
        # With what they were made of: without a reference its identity may be given away.
        self._shared: dict[tuple[int, int], tuple[object, bytes]] = {}
        self._columns: dict[int, tuple[object, msgspec.Raw]] = {}

    def packed(self, verdict: Verdict) -> Packed:
        kept, shared = packed_inputs(verdict)
        return Packed(self.shared_part(verdict) + self.own_part(verdict, kept), shared)

    def shared_part(self, verdict: Verdict) -> bytes:
        clusters, evidence = verdict.decision.trace.clusters, verdict.evidence
        key = id(clusters), id(evidence)
        known = self._shared.get(key)
        if known is None:
            part = self._packed(
                _SharedPart(
                    v=_SharedPart.newest, clusters=clusters, evidence=EVIDENCE.pack(evidence)
                )
            )
            known = self._shared[key] = (clusters, evidence), part
        return known[1]

    def own_part(self, verdict: Verdict, inputs: KeptInputs | None) -> bytes:
        # The shared part has the clusters.
        trace = msgspec.structs.replace(TRACES.pack(verdict.decision.trace), clusters=())
        promises = promise_columns(verdict.promises)
        return self._packed({"trace": trace, "promises": promises, "inputs": inputs})

    def _packed(self, value: object) -> bytes:
        # An encoder of its own would know the packer, and only the garbage collector free them.
        return deflated(msgspec.msgpack.encode(value, enc_hook=self._column))

    def _column(self, column: object) -> Any:
        """How an array is written; one that refuses to be written to may well be shared."""
        if isinstance(column, Reason):
            # Of a thousand clusters each may have one.
            return str(column)
        if not isinstance(column, np.ndarray) or column.flags.writeable:
            return plain_part_of(column)
        known = self._columns.get(id(column))
        if known is None:
            encoded = msgspec.Raw(msgspec.msgpack.encode(plain_part_of(column)))
            known = self._columns[id(column)] = column, encoded
        return known[1]


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
    """The binding, the decision, its evidence and its inputs as compressed JSON."""
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
    """What ``packed_preview`` made this of. Raises NewerBody."""
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
