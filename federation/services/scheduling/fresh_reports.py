"""Fresh reports before a refusal: the pods that they show leave more room than promises.

A promise counts wherever its pods may go, a pod only where it is. Must not delay other attempts,
nor delay a refusal more than once and by more than a short while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

import numpy as np

from federation.scheduler.decision import Decision, Outcome
from federation.services.fleet.report_requests import WAIT_SECONDS, Refreshing
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.queue import DecisionQueue
from federation.services.scheduling.working_copy import WorkingCopy

# The clusters with the most room are examined, and reports of some of them are requested.
MAX_CLUSTERS_EXAMINED: Final = 64
MAX_REPORTS_REQUESTED: Final = 8
# Further attempts are refused at once. The others have their answers soon.
MAX_ATTEMPTS_ASIDE: Final = 200


def unseen_in(working: WorkingCopy, attempt: Attempt, decision: Decision) -> tuple[str, ...]:
    """Return clusters that pass for a binding without room and have promises without pods."""
    if (
        attempt.is_retried
        or attempt.has_waited_for_reports
        or decision.outcome is not Outcome.UNSCHEDULABLE
    ):
        return ()
    trace, snapshot = decision.trace, working.snapshot
    (passing,) = (trace.filtering.refusal_c < 0).nonzero()
    by_room = passing[np.argsort(-trace.inputs.available_c[passing], kind="stable")]
    examined = by_room[:MAX_CLUSTERS_EXAMINED].tolist()
    unseen = (snapshot.names[c] for c in examined if working.is_open(c))
    return tuple(islice(unseen, MAX_REPORTS_REQUESTED))


class FreshReports:
    """The attempts that wait for fresh reports, until these come or take too long.

    ``go_on`` is called when some are back in the queue. Belongs to one event loop.
    """

    def __init__(
        self, queue: DecisionQueue, requests: Refreshing | None, go_on: Callable[[], None]
    ) -> None:
        self._queue = queue
        self._requests = requests
        self._go_on = go_on
        self._waiting: dict[asyncio.Task[None], int] = {}

    def without_hopeful(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts that are decided. The others wait, and are decided once more."""
        hopeful, events = list[Attempt](), set[asyncio.Event]()
        for attempt in attempts:
            if attempt.result.standing is None and (reports := self._request(attempt)):
                hopeful.append(attempt)
                events.update(reports)
        if not hopeful:
            return list(attempts)
        # An atomic batch or a gang waits as a whole.
        is_together = hopeful[0].atomic or hopeful[0].is_joining
        aside = list(attempts) if is_together else hopeful
        for attempt in aside:
            attempt.has_waited_for_reports = True
        self._queue.put_aside(aside)
        task = asyncio.create_task(self._wait(aside, events))
        self._waiting[task] = len(aside)
        task.add_done_callback(self._waiting.pop)
        gone = {attempt.id for attempt in aside}
        return [attempt for attempt in attempts if attempt.id not in gone]

    def close(self) -> None:
        for task in self._waiting:
            task.cancel()

    def _request(self, attempt: Attempt) -> list[asyncio.Event]:
        if self._requests is None or sum(self._waiting.values()) >= MAX_ATTEMPTS_ASIDE:
            return []
        return self._requests.before_refusal(attempt.result.unseen_in)

    async def _wait(self, attempts: Sequence[Attempt], events: set[asyncio.Event]) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                for event in events:
                    await event.wait()
        except TimeoutError:
            pass
        self._queue.put_back(attempts)
        self._go_on()
