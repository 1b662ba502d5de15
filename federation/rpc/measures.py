"""What is counted of calls: how many of each method ended with which code, and how long they took.

Must not count what is no method of ours: strangers would choose how much there is to remember.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import grpc

from federation.runtime.measures import Distribution

CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class CallMeasures:
    """By the paths of methods; ``durations`` of those that are no streams."""

    def __init__(self) -> None:
        self.ended = Counter[tuple[str, str]]()
        self.durations = defaultdict[str, Distribution](Distribution)

    def end(self, method: str, code: str, seconds: float | None) -> None:
        """A call ended; None: it was a stream."""
        self.ended[method, code] += 1
        if seconds is not None:
            self.durations[method].add(seconds)


def code_name(code: object) -> str:
    """What a context says that its call ends with; None: nobody said anything, all is well."""
    if code is None:
        return grpc.StatusCode.OK.name
    if isinstance(code, grpc.StatusCode):
        return code.name
    return CODES.get(code, grpc.StatusCode.UNKNOWN.name) if isinstance(code, int) else "UNKNOWN"
