"""Times that pass while bindings wait: a gang waits for too long, preempted bindings do not leave.

Must not change how anybody waits: a gang that has timed out waits on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from federation.model.placement import BindingName, binding_key
from federation.model.waiting import Nomination, Wait
from federation.services.binding_ports import StoredBinding
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged
from federation.services.ports import Clock, Store
from federation.services.scheduling.claims import still_there
from federation.services.scheduling.gangs import GangName
from federation.services.scheduling.working_copy import WorkingCopy

# By the database's clock it may be too early still.
AGAIN_SECONDS: Final = 1.0
# Nobody may have had the duty when those timed out.
UNATTENDED_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class GangTimeouts:
    """When which gang is to be told of. Belongs to one event loop."""

    def __init__(self, store: Store, fleet: FleetOwner, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._due: dict[GangName, float] = {}
        self._told: dict[GangName, float | None] = {}

    @property
    def next_at(self) -> float:
        return min(self._due.values(), default=math.inf)

    def note(self, stored: StoredBinding) -> None:
        """A binding as it waits now, where it does."""
        wait = stored.wait
        if wait is None or not wait.gang or wait.times_out is None:
            return
        name = stored.binding.namespace, wait.gang
        is_old = wait.has_timed_out and self._clock.now() - wait.times_out > UNATTENDED_SECONDS
        if not is_old and self._told.get(name) != wait.times_out:
            self._due[name] = wait.times_out

    async def tell(self) -> None:
        """Of those whose time has come, once. Raises Unavailable."""
        now = self._clock.now()
        for name in [name for name, at in self._due.items() if at <= now]:
            if await self._is_over(name):
                del self._due[name]
            else:
                self._due[name] = now + AGAIN_SECONDS

    async def _is_over(self, name: GangName) -> bool:
        """Whether it was told, or waits no more."""
        async with self._store.transaction() as tx:
            found = await tx.bindings.of_gang(*name)
            keys = [(each.binding.namespace, each.binding.name) for each in found]
            locked = await tx.bindings.lock_all(keys)
            waits = [each.wait for each in locked.values() if each.wait and each.wait.gang]
            late = [wait for wait in waits if wait.has_timed_out]
            if not late:
                return not waits
            changes = [
                BindingChanged.of(each.binding, decision=each.decision_id, waits=True)
                for each in locked.values()
                if each.wait and each.wait.gang
            ]
            await tx.journal.append(changes)
        for change in changes:
            self._fleet.apply(change)
        self._told[name] = late[0].times_out
        fields = {"gang": binding_key(*name), "short_of": late[0].short_of}
        logger.warning("a gang has waited for too long", extra={"fields": fields})
        return True


logger = logging.getLogger(__name__)


class Nominations:
    """Those of the queue, as last read; ``overdue`` counts for how many others did not leave in
    time.
    """

    def __init__(self) -> None:
        self.overdue = 0
        self._known: dict[BindingName, Nomination] = {}

    @property
    def next_at(self) -> float | None:
        """When the time of one is over."""
        return min((each.until for each in self._known.values()), default=None)

    def note(self, key: BindingName, wait: Wait | None, now: float) -> bool:
        """How one waits now; whether what was kept for it is not any more."""
        nominated = wait.nominated if wait else None
        if nominated is None or nominated.until <= now:
            return self.drop(key)
        self._known[key] = nominated
        return False

    def drop(self, key: BindingName) -> bool:
        """Nothing is kept for it any more; whether something was."""
        return self._known.pop(key, None) is not None

    def clear(self) -> None:
        self._known.clear()

    def end(self, now: float, working: Callable[[], WorkingCopy]) -> bool:
        """Give up what is due, by the fleet as it is then; whether something was."""
        due = {key: each for key, each in self._known.items() if each.until <= now}
        for key, nominated in due.items():
            del self._known[key]
            if any(still_there(working(), each) for each in nominated.leaving):
                self.overdue += 1
                fields = {"binding": binding_key(*key)}
                logger.warning("those it preempted did not leave in time", extra={"fields": fields})
        return bool(due)
