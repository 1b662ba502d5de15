"""In which order bindings of equal priority wait, where a plugin of their profile says so.

Must not wait for a plugin on the event loop, nor keep anybody from waiting: where one fails, those
that it was asked about stand by since when they wait.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from federation.model.arrays import FloatArray, read_only
from federation.model.errors import LimitExceeded, PluginFailed
from federation.model.placement import BindingName
from federation.scheduler.plugins.profile import Profiles, QueueSort
from federation.scheduler.plugins.run import order_by
from federation.scheduler.state import SortState
from federation.services.binding_ports import StoredBinding
from federation.services.ports import Clock
from federation.services.threads import Threads
from federation.services.troubles import TOLD_AGAIN_SECONDS, Trouble

# The whole queue waits for an answer. A plugin that failed is left alone for a while; then it is
# shown those that it failed for.
LONGEST_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class Ordering:
    """Asks queueSort plugins, in a thread. Belongs to one event loop."""

    def __init__(self, profiles: Profiles, clock: Clock) -> None:
        self._profiles = profiles
        self._clock = clock
        self._is_needed = any(each.queue_sort for each in profiles.by_name.values())
        self._threads = Threads("ordering what waits", workers=1, most_waiting=10)
        self._trouble = Trouble(
            logger,
            "a queueSort plugin failed: its bindings stand by since when they wait",
            again_seconds=TOLD_AGAIN_SECONDS,
        )
        self._failed: set[BindingName] = set()
        self._resting: set[QueueSort] = set()
        self.again_at = math.inf

    async def instants(self, rows: Sequence[StoredBinding]) -> Mapping[int, float]:
        """By their ids, for those of which a plugin says by which instant they stand."""
        if not self._is_needed:
            return {}
        found: dict[int, float] = {}
        for plugin, ordered in self._by_plugin(rows).items():
            instants = await self._ask(plugin, ordered)
            if instants is None:
                self._failed |= {(each.binding.namespace, each.binding.name) for each in ordered}
            else:
                ids = (each.id for each in ordered)
                found |= dict(zip(ids, instants.tolist(), strict=True))
        return found

    async def _ask(self, plugin: QueueSort, rows: Sequence[StoredBinding]) -> FloatArray | None:
        """None where there is no answer."""
        if plugin in self._resting:
            return None
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                return await self._threads.run(order_by, plugin, _state(rows))
        except (PluginFailed, LimitExceeded) as error:
            self._trouble.met(error, stack_of=error.__cause__, plugin=plugin.name)
        except TimeoutError:
            slow = PluginFailed(f"no answer within {LONGEST_SECONDS:g} s")
            self._trouble.met(slow, plugin=plugin.name)
        self._resting.add(plugin)
        self.again_at = min(self.again_at, self._clock.now() + AGAIN_SECONDS)
        return None

    def to_show_again(self) -> set[BindingName]:
        """Those that a plugin failed for a while ago."""
        if self._clock.now() < self.again_at:
            return set()
        failed, self._failed, self.again_at = self._failed, set(), math.inf
        self._resting.clear()
        return failed

    def close(self) -> None:
        self._threads.close()

    def _by_plugin(self, rows: Sequence[StoredBinding]) -> dict[QueueSort, list[StoredBinding]]:
        found = defaultdict[QueueSort, list[StoredBinding]](list)
        for each in rows:
            if each.wait is None or self._profiles.violations_of(each.binding):
                continue
            plugin = self._profiles.profile_of(each.binding).queue_sort
            if plugin is not None:
                found[plugin].append(each)
        return found


def _state(rows: Sequence[StoredBinding]) -> SortState:
    return SortState(
        bindings=tuple(each.binding for each in rows),
        priority_w=read_only(np.array([each.binding.priority for each in rows], dtype=np.int64)),
        since_w=read_only(np.array([each.wait.since for each in rows if each.wait])),
    )
