"""Follows one resource of the API server in a thread of its own: list, then watch, for ever.

Must not touch the cache: what it sees goes to a sink, which hands it to the loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import urllib3
from kubernetes.client.exceptions import ApiException

from estimator.backoff import Backoff
from estimator.kube.reading import (
    DEFAULT_PATIENCE,
    Change,
    Expired,
    Garbled,
    Patience,
    ResourceReader,
    Watched,
)
from federation.model.errors import FederationError

MAX_RETRY_AFTER_SECONDS: Final = 60.0

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


class Sink(Protocol[Value]):
    """Takes what a watcher sees. Called from the watcher's thread."""

    def replace(self, values: list[Value]) -> None:
        """These are all there are."""
        ...

    def apply(self, changes: list[Change[Value]]) -> None:
        """These came, in this order."""
        ...

    def contact(self, *, lost: bool) -> None:
        """Whether what was seen can still be believed to be current."""
        ...


class Watcher(Generic[Value]):
    """Keeps a sink in step with one resource until stopped.

    Runs in the thread that calls ``run``; ``stop`` may be called from any other.
    """

    def __init__(
        self,
        watched: Watched[Value],
        sink: Sink[Value],
        uniform: Callable[[float], float],
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self._name = watched.name
        self._reader = ResourceReader(watched, patience, uniform)
        self._sink = sink
        self._backoff = Backoff(uniform)
        self._stopping = threading.Event()
        self._version: str | None = None

    def stop(self) -> None:
        """End ``run`` soon, also when it is reading a quiet watch."""
        self._stopping.set()
        self._reader.abort()

    def run(self) -> None:
        while not self._stopping.is_set():
            seconds = 0.0
            try:
                if self._version is None:
                    self._list()
                else:
                    self._watch(self._version)
                self._backoff.reset()
            except Expired as error:
                # After a server's restart every agent lists anew: spread the herd.
                seconds = self._backoff.next_seconds()
                logger.info("listing %s anew: %s", self._name, error)
                self._version = None
            except ApiException as error:
                seconds = self._after_refusal(error)
            except (urllib3.exceptions.HTTPError, OSError, Garbled, FederationError) as error:
                seconds = self._backoff.next_seconds()
                self._report_trouble(str(error), seconds)
            self._stopping.wait(seconds)

    def _after_refusal(self, error: ApiException) -> float:
        """Seconds to wait after an error status."""
        seconds = self._backoff.next_seconds()
        if error.status == 401:
            self._reader.renew_credentials()
        if error.status == 429:
            seconds = max(seconds, _retry_after_seconds(error))
        self._report_trouble(f"{error.status} {error.reason}", seconds)
        return seconds

    def _report_trouble(self, what: str, seconds: float) -> None:
        if self._stopping.is_set():
            return
        self._sink.contact(lost=True)
        logger.warning("watching %s: %s; again in %.1f s", self._name, what, seconds)

    def _list(self) -> None:
        listed = self._reader.list_all()
        self._sink.replace(listed.values)
        self._sink.contact(lost=False)
        self._version = listed.version

    def _watch(self, version: str) -> None:
        """Hand on changes until the watch ends; the version to go on from moves with them."""
        for changes in self._reader.changes(version):
            if self._stopping.is_set():
                return
            if not changes:
                self._sink.contact(lost=False)
                continue
            self._sink.apply(changes)
            self._backoff.reset()
            self._version = changes[-1].version
        if self._version == version:
            self._check_history(version)

    def _check_history(self, version: str) -> None:
        """A watch from a version of another etcd stays silent for ever; a list tells."""
        now = self._reader.present_version()
        if now.isdigit() and version.isdigit() and int(now) < int(version):
            raise Expired(f"the server is at version {now}, before {version}")


def _retry_after_seconds(error: ApiException) -> float:
    text = (error.headers or {}).get("Retry-After", "")
    seconds = float(text) if text.isdigit() else 1.0
    return min(seconds, MAX_RETRY_AFTER_SECONDS)
