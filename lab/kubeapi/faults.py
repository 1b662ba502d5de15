"""What can go wrong between a client and the API server, made to order.

Must not decide what a healthy server answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it came in: its verb and target, as RBAC names them."""

    verb: str
    resource: str = ""
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    at_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer with this instead."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Answer rightly, so many of the server's seconds late."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Reset the connection instead of answering."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Send so many whole lines of a stream, half of the next one, and reset the connection."""

    whole_lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Never answer and never close; a watch that had begun says no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """Do something, then answer rightly."""

    act: Callable[[], object]


Action = Answer | Delay | Drop | Cut | Silence | First


@dataclass(slots=True, kw_only=True)
class _Fault:
    action: Action
    applies: Callable[[Asked], bool]
    left: int | None


class Faults:
    """The faults in force, first come first served. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []

    def add(
        self,
        action: Action,
        *,
        times: int | None = None,
        verb: str | None = None,
        resource: str | None = None,
        applies: Callable[[Asked], bool] = lambda _: True,
    ) -> None:
        """Do this to the next ``times`` requests that match, None meaning until cleared."""

        def matches(asked: Asked) -> bool:
            return (
                verb in (None, asked.verb) and resource in (None, asked.resource) and applies(asked)
            )

        with self._lock:
            self._faults.append(_Fault(action=action, applies=matches, left=times))

    @property
    def are_spent(self) -> bool:
        """Whether all that were to happen so many times have happened."""
        with self._lock:
            return all(fault.left == 0 for fault in self._faults)

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def take(self, asked: Asked) -> Action | None:
        """The fault that befalls this request."""
        with self._lock:
            for fault in self._faults:
                if fault.left == 0 or not fault.applies(asked):
                    continue
                if fault.left is not None:
                    fault.left -= 1
                return fault.action
            return None


def throttled(retry_after_seconds: int) -> Answer:
    """What Priority and Fairness answers: no Status."""
    return Answer(
        status=429,
        body=b"Too many requests, please try again later.\n",
        content_type="text/plain; charset=utf-8",
        headers={"Retry-After": str(retry_after_seconds), "X-Content-Type-Options": "nosniff"},
    )


def bad_gateway(status: int = 503) -> Answer:
    """What a proxy in front of the API server answers: HTML."""
    return Answer(
        status=status,
        body=b"<html><body><h1>Service Unavailable</h1></body></html>\n",
        content_type="text/html",
    )


def server_error() -> Answer:
    return Answer(
        status=500,
        body=b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"etcdserver: leader changed","code":500}\n',
    )
