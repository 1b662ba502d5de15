"""The order of waiting bindings of equal priority, by queueSort plugins of their profiles.

Must not wait for a plugin on the event loop. If a plugin fails, its bindings are ordered by the
time since which they wait.
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

# The whole queue waits for an answer. A plugin that failed is asked again about the same bindings
# after a while.
MAX_ANSWER_SECONDS: Final = 1.0
AGAIN_SECONDS: Final = 60.0

logger = logging.getLogger(__name__)


class Ordering:
    """Answers of queueSort plugins, asked in a thread. Belongs to one event loop."""

    def __init__(self, profiles: Profiles, clock: Clock) -> None:
        self._profiles = profiles
        self._clock = clock
        self._is_needed = any(profile.queue_sort for profile in profiles.by_name.values())
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
        """Return by row id the instants by which plugins order bindings."""
        if not self._is_needed:
            return {}
        by_id: dict[int, float] = {}
        for plugin, ordered in self._by_plugin(rows).items():
            instants = await self._ask(plugin, ordered)
            if instants is None:
                self._failed |= {
                    (stored.binding.namespace, stored.binding.name) for stored in ordered
                }
            else:
                ids = (stored.id for stored in ordered)
                by_id |= dict(zip(ids, instants.tolist(), strict=True))
        return by_id

    async def _ask(self, plugin: QueueSort, rows: Sequence[StoredBinding]) -> FloatArray | None:
        """Ask one plugin; None: it has no answer."""
        if plugin in self._resting:
            return None
        try:
            async with asyncio.timeout(MAX_ANSWER_SECONDS):
                return await self._threads.run(order_by, plugin, _state(rows))
        except (PluginFailed, LimitExceeded) as error:
            self._trouble.met(error, stack_of=error.__cause__, plugin=plugin.name)
        except TimeoutError:
            slow = PluginFailed(f"no answer within {MAX_ANSWER_SECONDS:g} s")
            self._trouble.met(slow, plugin=plugin.name)
        self._resting.add(plugin)
        self.again_at = min(self.again_at, self._clock.now() + AGAIN_SECONDS)
        return None

    def to_show_again(self) -> set[BindingName]:
        """Return bindings for which a plugin failed a while ago."""
        if self._clock.now() < self.again_at:
            return set()
        failed, self._failed, self.again_at = self._failed, set(), math.inf
        self._resting.clear()
        return failed

    def close(self) -> None:
        self._threads.close()

    def _by_plugin(self, rows: Sequence[StoredBinding]) -> dict[QueueSort, list[StoredBinding]]:
        rows_of = defaultdict[QueueSort, list[StoredBinding]](list)
        for stored in rows:
            if stored.wait is None or self._profiles.violations_of(stored.binding):
                continue
            plugin = self._profiles.profile_of(stored.binding).queue_sort
            if plugin is not None:
                rows_of[plugin].append(stored)
        return rows_of


def _state(rows: Sequence[StoredBinding]) -> SortState:
    return SortState(
        bindings=tuple(stored.binding for stored in rows),
        priority_w=read_only(
            np.array([stored.binding.priority for stored in rows], dtype=np.int64)
        ),
        since_w=read_only(np.array([stored.wait.since for stored in rows if stored.wait])),
    )
