"""A preview's binding and decision as one small body, and back.

Must not talk to the database.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from federation.model.placement import Binding
from federation.scheduler.decision import Decision
from federation.scheduler.serialization import from_plain
from federation.services.packed_traces import TRACE_COMPRESSION
from federation.services.values import ClusterPromise, ReportEvidence, Verdict


def packed_preview(binding: Binding, verdict: Verdict) -> bytes:
    """The binding, the decision and its evidence as compressed JSON."""
    plain = {
        "binding": msgspec.to_builtins(binding, str_keys=True),
        "decision": verdict.decision.to_plain(),
        "evidence": verdict.evidence,
        "promises": verdict.promises,
    }
    return zlib.compress(msgspec.json.encode(plain), TRACE_COMPRESSION)


def unpacked_preview(body: bytes) -> tuple[Binding, Verdict]:
    """What ``packed_preview`` made this of."""
    plain: dict[str, Any] = msgspec.json.decode(zlib.decompress(body))
    return msgspec.convert(plain["binding"], Binding), Verdict(
        decision=from_plain(Decision, plain["decision"]),
        evidence=msgspec.convert(plain["evidence"], ReportEvidence),
        # None in what was stored before promises were made.
        promises=msgspec.convert(plain.get("promises", ()), tuple[ClusterPromise, ...]),
    )
