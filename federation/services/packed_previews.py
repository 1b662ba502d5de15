"""A preview's binding and decision as one small body, and back.

Must not talk to the database.
"""

from __future__ import annotations

import msgspec

from federation.history.binding_rows import BINDINGS, BindingRow
from federation.history.bodies import Body, check_version, deflated, inflated, read_body
from federation.history.packed_inputs import KeptInputs, Packed
from federation.history.trace_rows import DECISIONS, DecisionRow, part_of, plain_part_of
from federation.model.placement import Binding
from federation.model.reasons import stored_reason
from federation.scheduler.scarcity import short_of
from federation.services.packed_traces import (
    EVIDENCE,
    EvidenceRow,
    PromiseColumns,
    packed_inputs,
    promise_columns,
    promises_of,
)
from federation.services.values import Verdict


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
