"""Time limits of waiting: gangs that wait for too long, and preempted bindings that do not leave.

Must not change how bindings wait: a gang that has timed out waits on.
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
from federation.services.scheduling.earmarks import remaining_pods
from federation.services.scheduling.together import GangName
from federation.services.scheduling.working_copy import WorkingCopy

# By the database's clock it may be too early.
AGAIN_SECONDS: Final = 1.0
# Timeouts older than this were announced, even if no control plane had the duty then.
UNATTENDED_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class GangTimeouts:
    """Gangs whose timeouts are to be announced. Belongs to one event loop."""

    def __init__(self, store: Store, fleet: FleetOwner, clock: Clock) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._due: dict[GangName, float] = {}
        self._announced: dict[GangName, float | None] = {}

    @property
    def next_at(self) -> float:
        return min(self._due.values(), default=math.inf)

    def note(self, stored: StoredBinding) -> None:
        """Note how a binding waits now, if it does."""
        wait = stored.wait
        if wait is None or not wait.gang or wait.times_out is None:
            return
        name = stored.binding.namespace, wait.gang
        is_old = wait.has_timed_out and self._clock.now() - wait.times_out > UNATTENDED_SECONDS
        if not is_old and self._announced.get(name) != wait.times_out:
            self._due[name] = wait.times_out

    async def announce(self) -> None:
        """Announce each gang whose time is over, once. Raises Unavailable."""
        now = self._clock.now()
        for name in [name for name, at in self._due.items() if at <= now]:
            if await self._is_over(name):
                del self._due[name]
            else:
                self._due[name] = now + AGAIN_SECONDS

    async def _is_over(self, name: GangName) -> bool:
        """Announce a timeout; return whether that was done, or the gang waits no more."""
        async with self._store.transaction() as tx:
            members = await tx.bindings.of_gang(*name)
            keys = [(stored.binding.namespace, stored.binding.name) for stored in members]
            locked = await tx.bindings.lock_all(keys)
            waits = [stored.wait for stored in locked.values() if stored.wait and stored.wait.gang]
            late = [wait for wait in waits if wait.has_timed_out]
            if not late:
                return not waits
            changes = [
                BindingChanged.of(stored.binding, decision=stored.decision_id, waits=True)
                for stored in locked.values()
                if stored.wait and stored.wait.gang
            ]
            await tx.journal.append(changes)
        for change in changes:
            self._fleet.apply(change)
        self._announced[name] = late[0].times_out
        fields = {"gang": binding_key(*name), "short_of": late[0].short_of}
        logger.warning("a gang has waited for too long", extra={"fields": fields})
        return True


class Nominations:
    """Nominations of waiting bindings, as last read.

    ``overdue`` counts those whose preempted bindings did not leave in time.
    """

    def __init__(self) -> None:
        self.overdue = 0
        self._known: dict[BindingName, Nomination] = {}

    @property
    def next_at(self) -> float | None:
        """When the first nomination ends."""
        return min((nomination.until for nomination in self._known.values()), default=None)

    def note(self, key: BindingName, wait: Wait | None, now: float) -> bool:
        """Note how a binding waits now; return whether its room is no longer kept."""
        nominated = wait.nominated if wait else None
        if nominated is None or nominated.until <= now:
            return self.drop(key)
        self._known[key] = nominated
        return False

    def drop(self, key: BindingName) -> bool:
        """Keep no room for a binding; return whether some was kept."""
        return self._known.pop(key, None) is not None

    def clear(self) -> None:
        self._known.clear()

    def end(self, now: float, working: Callable[[], WorkingCopy]) -> bool:
        """End nominations that are due; return whether there were any."""
        due = {key: nominated for key, nominated in self._known.items() if nominated.until <= now}
        for key, nominated in due.items():
            del self._known[key]
            if any(remaining_pods(working(), pods) for pods in nominated.leaving):
                self.overdue += 1
                fields = {"binding": binding_key(*key)}
                logger.warning("those it preempted did not leave in time", extra={"fields": fields})
        return bool(due)
