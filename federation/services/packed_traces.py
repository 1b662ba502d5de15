"""What a decision was made on and why, as one small body, and back.

Must not talk to the database. A body is two compressed parts: what decisions on one snapshot share
(the clusters' names, their reports), and the rest of the trace.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np

from federation.scheduler.serialization import plain_column
from federation.scheduler.trace import Trace
from federation.services.threads import PACKING, Threads
from federation.services.values import ClusterPromise, ReportEvidence, Verdict

# Traces repeat themselves: level 6 saves another 7 % for twice the time.
TRACE_COMPRESSION = 1
# Fewer clusters, in all traces together, are packed in less than 5 ms: not worth a thread.
CLUSTERS_PER_THREAD = 500

_OWN_FIELDS = tuple(each.name for each in fields(Trace) if each.name != "clusters")


def packed_traces(verdicts: Iterable[Verdict]) -> list[bytes]:
    """The trace, the evidence and the promises of each; what several share is packed once."""
    packer = _Packer()
    return [packer.shared_part(each) + packer.own_part(each) for each in verdicts]


async def packed_off_loop(verdicts: Sequence[Verdict], threads: Threads = PACKING) -> list[bytes]:
    """The same, in a thread where it takes long."""
    if sum(len(each.decision.trace.clusters) for each in verdicts) < CLUSTERS_PER_THREAD:
        return packed_traces(verdicts)
    return await threads.run(packed_traces, verdicts)


def unpacked_trace(packed: bytes) -> tuple[Trace, ReportEvidence, tuple[ClusterPromise, ...]]:
    """What ``packed_traces`` made this of; quotas come back rounded."""
    first = zlib.decompressobj()
    shared = msgspec.msgpack.decode(first.decompress(packed))
    own = msgspec.msgpack.decode(zlib.decompress(first.unused_data), strict=False)
    return (
        Trace.from_plain({"clusters": shared["clusters"], **own["trace"]}),
        msgspec.convert(shared["evidence"], ReportEvidence),
        msgspec.convert(own["promises"], tuple[ClusterPromise, ...]),
    )


class _Packer:
    """Packs some traces, and remembers the parts that came before: their values are immutable."""

    def __init__(self) -> None:
        # With what they were made of: without a reference its identity may be given away.
        self._shared: dict[tuple[int, int], tuple[object, bytes]] = {}
        self._columns: dict[int, tuple[object, msgspec.Raw]] = {}

    def shared_part(self, verdict: Verdict) -> bytes:
        clusters, evidence = verdict.decision.trace.clusters, verdict.evidence
        key = id(clusters), id(evidence)
        known = self._shared.get(key)
        if known is None:
            part = self._packed({"clusters": clusters, "evidence": evidence})
            known = self._shared[key] = (clusters, evidence), part
        return known[1]

    def own_part(self, verdict: Verdict) -> bytes:
        trace = verdict.decision.trace
        own = {name: getattr(trace, name) for name in _OWN_FIELDS}
        return self._packed({"trace": own, "promises": verdict.promises})

    def _packed(self, value: object) -> bytes:
        # An encoder of its own would know the packer, and only the garbage collector free them.
        encoded = msgspec.msgpack.encode(value, enc_hook=self._column)
        return zlib.compress(encoded, TRACE_COMPRESSION)

    def _column(self, column: object) -> Any:
        """How an array is written; one that refuses to be written to may well be shared."""
        if not isinstance(column, np.ndarray):
            raise TypeError(f"a trace holds a {type(column).__name__}")
        if column.flags.writeable:
            return plain_column(column)
        known = self._columns.get(id(column))
        if known is None:
            encoded = msgspec.Raw(msgspec.msgpack.encode(plain_column(column)))
            known = self._columns[id(column)] = column, encoded
        return known[1]
