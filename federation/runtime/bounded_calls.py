"""Calls of functions of others that must not keep their caller for ever.

Must not know what they are for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeAlias

LONGEST_SECONDS: Final = 3.0
REST_SECONDS: Final = 60.0

_Call: TypeAlias = tuple[Future[Any], tuple[Any, ...], dict[str, Any]]


class BoundedCalls:
    """A function that is called in a thread of its own, one call after the other.

    A caller waits only so long: then it is told TimeoutError, and so is at once who calls while the
    function rests from that. Nothing stops the call itself.
    """

    def __init__(
        self,
        run: Callable[..., Any],
        seconds: float = LONGEST_SECONDS,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        self._run = run
        self._seconds, self._rest_seconds = seconds, rest_seconds
        self._rests_until = 0.0
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if time.monotonic() < self._rests_until:
            text = f"it took longer than {self._seconds:g} s and is not asked again for a while"
            raise TimeoutError(text)
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
        answer = Future[Any]()
        self._calls.put((answer, args, kwargs))
        try:
            return answer.result(self._seconds)
        except TimeoutError:
            if answer.done() and not answer.cancelled():
                # The function's own.
                raise
            answer.cancel()
            self._rests_until = time.monotonic() + self._rest_seconds
            raise TimeoutError(f"no answer within {self._seconds:g} s") from None

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process calls in a thread of its own."""
        return type(self), (self._run, self._seconds, self._rest_seconds)

    def _work(self) -> None:
        while True:
            answer, args, kwargs = self._calls.get()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(self._run(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                answer.set_exception(error)
