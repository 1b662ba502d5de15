"""A preview's binding and decision as one small body, and back.

Must not talk to the database.
"""

from __future__ import annotations

from typing import Any

import msgspec

from federation.history.bodies import Body, deflated, inflated, read_body
from federation.history.packed_inputs import KeptInputs, Packed
from federation.model.placement import Binding
from federation.scheduler.decision import Decision
from federation.scheduler.serialization import from_plain
from federation.services.packed_traces import (
    PromiseColumns,
    packed_inputs,
    promise_columns,
    promises_of,
)
from federation.services.values import ReportEvidence, Verdict


class _PreviewBody(Body, frozen=True):
    binding: Binding
    decision: dict[str, Any]
    evidence: ReportEvidence = ReportEvidence()
    promises: PromiseColumns | None = None
    wait: bool = True
    inputs: KeptInputs | None = None


_PREVIEWS = msgspec.json.Decoder(_PreviewBody)


def packed_preview(binding: Binding, verdict: Verdict, *, wait: bool) -> Packed:
    """The binding, the decision, its evidence and its inputs as compressed JSON."""
    inputs, shared = packed_inputs(verdict)
    plain = {
        "v": _PreviewBody.newest,
        "binding": binding,
        "decision": verdict.decision.to_plain(),
        "evidence": verdict.evidence,
        "promises": promise_columns(verdict.promises),
        "wait": wait,
        "inputs": inputs,
    }
    return Packed(deflated(msgspec.json.encode(plain)), shared)


def unpacked_preview(body: bytes) -> tuple[Binding, Verdict, bool]:
    """What ``packed_preview`` made this of. Raises NewerBody."""
    preview = read_body(_PREVIEWS, inflated(body)[0], "previews")
    verdict = Verdict(
        decision=from_plain(Decision, preview.decision),
        evidence=preview.evidence,
        promises=promises_of(preview.promises),
        inputs=preview.inputs,
    )
    return preview.binding, verdict, preview.wait
