"""Follows one resource of the API server in a thread of its own: list, then watch, for ever.

Must not touch the cache: what it sees goes to a sink, which hands it to the loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Generic, Protocol, TypeVar

import urllib3
from kubernetes.client.exceptions import ApiException

from estimator.kube.reading import (
    DEFAULT_PATIENCE,
    Expired,
    Garbled,
    ObjectChange,
    Patience,
    ResourceReader,
    Watched,
)
from estimator.measures import AgentMeasures
from estimator.sight import Loss
from federation.model.errors import FederationError
from federation.runtime.backoff import Backoff
from federation.runtime.measures import Distribution

MAX_RETRY_AFTER_SECONDS: Final = 60.0
# One agent a cluster makes no herd, and until the next try it is blind.
CAP_SECONDS: Final = 10.0

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


class Sink(Protocol[Value]):
    """Takes what a watcher sees. Called from the watcher's thread."""

    def replace(self, values: list[Value]) -> None:
        """These are all there are."""
        ...

    def apply(self, changes: list[ObjectChange[Value]]) -> None:
        """These came, in this order."""
        ...

    def reach(self, version: str) -> None:
        """What came is all there is, or was changed, up to this version."""
        ...

    def find(self) -> None:
        """What was seen is current from now on, until it is lost."""
        ...

    def lose(self, loss: Loss, *, forbidden: bool) -> None:
        """What was seen may be out of date. ``forbidden``: the agent may not read it."""
        ...

    def skip(self, objects: int) -> None:
        """So many objects cannot be read and are left out."""
        ...


class Watcher(Generic[Value]):
    """Keeps a sink in step with one resource until stopped.

    Runs in the thread that calls ``run``; ``stop`` may be called from any other. ``clock`` is the
    one that losses are dated by.
    """

    def __init__(
        self,
        watched: Watched[Value],
        sink: Sink[Value],
        uniform: Callable[[float], float],
        patience: Patience = DEFAULT_PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        measures: AgentMeasures | None = None,
    ) -> None:
        self.name = watched.name
        self._measures = measures or AgentMeasures()
        self._listing = self._measures.lists.setdefault(self.name, Distribution())
        self._reader = ResourceReader(watched, patience, uniform)
        self._sink = sink
        self._backoff = Backoff(uniform, cap_seconds=CAP_SECONDS)
        self._clock = clock
        self._stopping = threading.Event()
        self._version: str | None = None
        # When the server last showed that it, and what it sends us, is alive.
        self._alive_at = clock()
        self._is_current = False
        self._answers = True
        self._skipped = 0

    def stop(self) -> None:
        """End ``run`` soon, also when it is reading a quiet watch."""
        self._stopping.set()
        self._reader.abort()

    def run(self) -> None:
        """Returns when stopped. What nobody foresaw is raised, after contact was said to be lost;
        ``run`` may be called again then and begins with a list.
        """
        try:
            while not self._stopping.is_set():
                self._stopping.wait(self._try())
        except Exception as error:
            self._version = None
            self._lose(f"the watcher failed: {type(error).__name__}: {error}")
            raise

    def _try(self) -> float:
        """List, or watch until the watch ends; seconds to wait before the next try."""
        try:
            if self._version is None:
                self._list()
            else:
                self._watch(self._version)
        except Expired as error:
            logger.info("listing %s anew: %s", self.name, error)
            self._version = None
            self._lose(f"what was seen is too old: {error}")
            # After a server's restart every agent lists anew: spread the herd.
            return self._pause(answers=True)
        except ApiException as error:
            return self._after_refusal(error)
        except Garbled as error:
            # Going on from the same version might bring the same again.
            self._version = None
            return self._after_trouble(str(error), answers=True)
        except (urllib3.exceptions.HTTPError, OSError, FederationError) as error:
            # The certificates of a kubeconfig may be others by now.
            self._reader.renew_credentials()
            return self._after_trouble(str(error), answers=False)
        self._backoff.reset()
        return 0.0

    def _after_refusal(self, error: ApiException) -> float:
        """Seconds to wait after an error status."""
        if error.status == HTTPStatus.UNAUTHORIZED:
            self._reader.renew_credentials()
        # A proxy says so of a server that is away.
        answers = (error.status or 0) < HTTPStatus.INTERNAL_SERVER_ERROR
        seconds = self._after_trouble(
            f"{error.status} {error.reason}",
            answers=answers,
            forbidden=error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND),
        )
        if error.status == HTTPStatus.TOO_MANY_REQUESTS:
            seconds = max(seconds, _retry_after_seconds(error))
        return seconds

    def _after_trouble(self, what: str, *, answers: bool, forbidden: bool = False) -> float:
        seconds = self._pause(answers=answers)
        if not self._stopping.is_set():
            self._measures.troubles[self.name] += 1
            self._lose(what, forbidden=forbidden)
            logger.warning("watching %s: %s; again in %.1f s", self.name, what, seconds)
        return seconds

    def _pause(self, *, answers: bool) -> float:
        """Seconds to wait: few again once a server answers that did not."""
        if answers and not self._answers:
            self._backoff.reset()
        self._answers = answers
        return self._backoff.next_seconds()

    def _lose(self, why: str, *, forbidden: bool = False) -> None:
        self._is_current = False
        self._sink.lose(Loss(since=self._alive_at, why=why), forbidden=forbidden)

    def _find(self) -> None:
        """What was handed on is current now."""
        self._alive_at = self._clock()
        self._answers = True
        if not self._is_current:
            self._is_current = True
            self._sink.find()
        if self._reader.skipped != self._skipped:
            self._skipped = self._reader.skipped
            self._sink.skip(self._skipped)

    def _list(self) -> None:
        began = time.monotonic()
        listed = self._reader.list_all()
        self._listing.add(time.monotonic() - began)
        self._sink.replace(listed.values)
        self._version = listed.version
        self._sink.reach(listed.version)
        self._find()

    def _watch(self, version: str) -> None:
        """Hand on changes until the watch ends; the version to go on from moves with them."""
        for changes in self._reader.changes(version):
            if self._stopping.is_set():
                return
            if changes:
                self._sink.apply(changes)
                self._measures.changes[self.name] += len(changes)
                self._backoff.reset()
                self._version = changes[-1].version
                self._sink.reach(self._version)
            elif not self._is_current:
                # Servers open watches, too, that they never say a word on.
                self._check_history(version)
            self._find()
        self._find()
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
