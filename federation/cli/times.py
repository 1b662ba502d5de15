"""Times as people write them on the command line.

Must not read any clock.
"""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from federation.cli.durations import has_unit, seconds_of
from federation.codec.timestamps import timestamp_from_seconds, timestamp_from_text
from federation.model.errors import InvalidRequest


def time_of(text: str, option: str, now: float) -> Timestamp:
    """A time, or how long before ``now`` (Unix seconds) it was. Raises InvalidRequest."""
    if has_unit(text):
        return timestamp_from_seconds(max(0.0, now - seconds_of(text, option)))
    time = timestamp_from_text(text)
    if time is None:
        rule = f"must be a span such as 24h, or a time such as 2026-03-01T12:00:00Z, not {text!r}"
        raise InvalidRequest.of(option, rule)
    return time
