"""Points in time: RFC 3339 text, protobuf timestamps, Unix seconds.

Must not read any clock.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
# Year 1 to year 9999, protobuf's range.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799

# A control plane's time in Unix seconds, in the trailing metadata of each single answer.
SERVER_TIME_KEY: Final = "fedsched-server-time"

TIMESTAMP_RULE: Final = "must be an RFC 3339 time such as 2026-03-01T12:00:00Z"


def timestamp_from_text(text: str) -> Timestamp | None:
    """The time a text names; None when it is not RFC 3339."""
    if not _RFC3339.fullmatch(text):
        return None
    try:
        seconds = datetime.fromisoformat(text.upper()).timestamp()
    except ValueError:
        return None
    return timestamp_from_seconds(seconds)


def timestamp_from_seconds(seconds: float) -> Timestamp:
    """Unix seconds as a timestamp, to the microsecond."""
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    return Timestamp(seconds=whole, nanos=micros * 1000)


def seconds_from_timestamp(timestamp: Timestamp) -> float | None:
    """Unix seconds; None when the message is outside protobuf's own range."""
    if not _FIRST_SECOND <= timestamp.seconds <= _LAST_SECOND:
        return None
    if not 0 <= timestamp.nanos < 1_000_000_000:
        return None
    return timestamp.seconds + timestamp.nanos / 1_000_000_000
