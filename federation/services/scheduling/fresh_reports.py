"""Before a refusal for want of room, fresh reports: pods that they show stand where they are, and
leave more room than wherever they might have gone.

Must not keep others waiting, nor let anything be refused later than a short while, once.
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

# Of so many clusters, those that have most room, reports are asked for, if so many show not all.
MOST_LOOKED_AT: Final = 64
MOST_ASKED: Final = 8
# More are refused at once: those that wait have their answers soon.
MOST_ASIDE: Final = 200


def unseen_in(working: WorkingCopy, attempt: Attempt, decision: Decision) -> tuple[str, ...]:
    """Clusters that let in a binding that finds no room, where not all that is promised is seen."""
    if (
        attempt.is_retried
        or attempt.has_waited_for_reports
        or decision.outcome is not Outcome.UNSCHEDULABLE
    ):
        return ()
    trace, snapshot = decision.trace, working.snapshot
    (passing,) = (trace.filtering.refusal_c < 0).nonzero()
    most_first = passing[np.argsort(-trace.inputs.available_c[passing], kind="stable")]
    looked_at = most_first[:MOST_LOOKED_AT].tolist()
    unseen = (snapshot.names[c] for c in looked_at if working.is_open(c))
    return tuple(islice(unseen, MOST_ASKED))


class FreshReports:
    """Puts attempts aside that reports may help, and back once these came or took too long.

    ``go_on`` is called when some are back. Belongs to one event loop.
    """

    def __init__(
        self, queue: DecisionQueue, requests: Refreshing | None, go_on: Callable[[], None]
    ) -> None:
        self._queue = queue
        self._requests = requests
        self._go_on = go_on
        self._waiting: dict[asyncio.Task[None], int] = {}

    def without_hopeful(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Those that are decided; nothing came of the others, which are decided once more."""
        hopeful, events = list[Attempt](), set[asyncio.Event]()
        for attempt in attempts:
            if attempt.result.standing is None and (asked := self._ask(attempt)):
                hopeful.append(attempt)
                events.update(asked)
        if not hopeful:
            return list(attempts)
        # Nothing comes of an atomic batch, nor of a gang, as long as one of it is not placed.
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

    def _ask(self, attempt: Attempt) -> list[asyncio.Event]:
        if self._requests is None or sum(self._waiting.values()) >= MOST_ASIDE:
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
