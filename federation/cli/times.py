"""Times and spans of time as people write them on the command line.

Must not read any clock.
"""

from __future__ import annotations

import re
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from federation.codec.timestamps import timestamp_from_seconds, timestamp_from_text
from federation.model.errors import InvalidRequest

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN: Final = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)


def seconds_of(text: str, option: str) -> int:
    """``90s``, ``15m``, ``24h``, ``7d``. Raises InvalidRequest."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise InvalidRequest.of(option, f"must be a number and s, m, h or d, not {text!r}")
    return int(match[1]) * UNITS[match[2]]


def time_of(text: str, option: str, now: float) -> Timestamp:
    """A time, or how long before ``now`` (Unix seconds) it was. Raises InvalidRequest."""
    if _SPAN.fullmatch(text):
        return timestamp_from_seconds(max(0.0, now - seconds_of(text, option)))
    time = timestamp_from_text(text)
    if time is None:
        rule = f"must be a span such as 24h, or a time such as 2026-03-01T12:00:00Z, not {text!r}"
        raise InvalidRequest.of(option, rule)
    return time
