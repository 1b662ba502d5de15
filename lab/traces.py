"""The corpus of recorded decisions as a trace file."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from federation.history.trace_files import (
    END,
    TraceChunk,
    TracedDecision,
    TracedDeletion,
    TraceHeader,
    beginning,
    chunk_bytes,
)
from lab.replays.record import CORPUS

HEADER = TraceHeader(v=TraceHeader.newest)


def corpus() -> tuple[list[TracedDecision], dict[bytes, bytes]]:
    """All decisions, a second apart, and the bodies of what they were made on."""
    lines = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    bodies = {
        base64.b64decode(line["name"]): base64.b64decode(line["body"])
        for line in lines
        if "body" in line
    }
    recorded = [
        {
            **line,
            "id": f"decision-{number}",
            "namespace": "shop",
            "name": f"web-{number}",
            "at": 1_000_000 * (1000 + number),
            "trace": base64.b64decode(line["trace"]),
        }
        for number, line in enumerate(each for each in lines if "trace" in each)
    ]
    return msgspec.convert(recorded, list[TracedDecision]), bodies


def write_trace(
    path: Path,
    decisions: Iterable[TracedDecision],
    bodies: dict[bytes, bytes],
    *,
    in_chunk: int = 50,
    header: TraceHeader = HEADER,
    deletions: Iterable[TracedDeletion] = (),
) -> Path:
    made = list(decisions)
    chunks = [
        TraceChunk(
            v=TraceChunk.newest,
            decisions=tuple(made[start : start + in_chunk]),
            bodies=bodies,
            deletions=tuple(deletions) if start == 0 else (),
        )
        for start in range(0, len(made), in_chunk)
    ]
    path.write_bytes(beginning(header) + b"".join(map(chunk_bytes, chunks)) + END)
    return path
