"""Wants: waiting bindings with equal requests, the room that the fleet has for each want, and the
order of those of equal priority, by queueSort plugins of their profiles.

``look_for`` is for a thread of its own. Must not wake bindings, nor wait for a plugin on the event
loop. If a plugin fails, its bindings are ordered by the time since which they wait.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final

import msgspec
import numpy as np

from federation.model.arrays import FloatArray, read_only
from federation.model.errors import FederationError, LimitExceeded, PluginFailed
from federation.model.placement import Binding, BindingName, PreemptionPolicy, is_grouped
from federation.model.workload import ObjectReference
from federation.scheduler.demand import Demand
from federation.scheduler.plugins.profile import Filter, Profile, Profiles, QueueSort, Score
from federation.scheduler.plugins.run import is_in_tree, order_by
from federation.scheduler.state import NO_CONTEXT, BindingContext, SortState
from federation.scheduler.waiting.queue import MAX_BACKOFF_SECONDS, Seen, Waiter
from federation.services.binding_ports import StoredBinding
from federation.services.ports import Clock, Store
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.eligible_clusters import context_of, find_eligible
from federation.services.scheduling.together import seen_together
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.threads import Threads
from federation.services.troubles import TOLD_AGAIN_SECONDS, Trouble

DIGEST_BYTES = 16
# Fields that do not decide whether there is room, or are compared apart from the others.
_APART = frozenset(
    {
        "namespace",
        "name",
        "uid",
        "labels",
        "annotations",
        "generation",
        "resource_version",
        "resource",
        "priority",
        "fresh",
        "reschedule_triggered_at",
        "last_scheduled_time",
        "lease_seconds",
        "preemption_policy",
        "stored_id",
        "expected_version",
    }
)
_request_fields = attrgetter(*(field.name for field in fields(Binding) if field.name not in _APART))


def waiting_of(
    stored: StoredBinding,
    profiles: Profiles,
    now: float,
    instant: float | None = None,
    limited: Collection[str] = (),
) -> Waiter | None:
    """Return a waiter; None: it does not wait, is gated, or its gang has another entry.

    ``instant`` replaces the time since which it waits. ``limited`` namespaces have quotas.
    """
    binding, wait = stored.binding, stored.wait
    if wait is None or not wait.is_tried or wait.entry not in ("", binding.name):
        return None
    # Another clock may have set the next try.
    later = min(wait.next_try, now + MAX_BACKOFF_SECONDS) if wait.next_try else 0.0
    return Waiter(
        key=(binding.namespace, binding.name),
        priority=wait.priority if wait.gang else binding.priority,
        since=wait.since if instant is None else instant,
        want=want_of(stored, profiles, limited),
        units=max(Demand.of(binding).units, 1),
        not_before=later,
        is_overtaken=wait.overtaken_since is not None,
    )


def want_of(stored: StoredBinding, profiles: Profiles, limited: Collection[str] = ()) -> bytes:
    """Return a digest that is equal for bindings of which all or none can be placed."""
    binding = stored.binding
    # A binding that has clusters or depends on others is like no other.
    is_alone = bool(binding.clusters or binding.eviction_tasks or binding.gang)
    is_alone = is_alone or is_grouped(binding)
    # Preemption depends on its priority, too.
    is_alone = is_alone or binding.preemption_policy is not PreemptionPolicy.NEVER
    is_alone = is_alone or not _is_plain(profiles.by_name.get(binding.scheduler_name))
    want = (
        binding.namespace if is_alone or binding.namespace in limited else "",
        binding.name if is_alone else "",
        _resource(binding),
        _request_fields(binding),
        stored.observed_affinity,
    )
    packed = msgspec.msgpack.encode(want, order="deterministic")
    return hashlib.blake2b(packed, digest_size=DIGEST_BYTES).digest()


def _resource(binding: Binding) -> ObjectReference:
    """Return the fields that count: the uid breaks ties if capacity is not looked at."""
    resource = binding.resource
    heeds_room = Demand.of(binding).rule.heeds_capacity
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        uid="" if heeds_room else resource.uid,
    )


def _is_plain(profile: Profile | None) -> bool:
    """Whether its plugins look at nothing but fields of a want."""
    if profile is None:
        return True
    plugins: list[Filter | Score] = [*profile.filters, *profile.scores]
    return not profile.permits and all(is_in_tree(plugin) for plugin in plugins)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A binding with a want, as decided last, and all members of its gang, if it has one."""

    binding: Binding
    surroundings: BindingContext = NO_CONTEXT
    gang: Sequence[Attempt] = ()

    @classmethod
    def of(cls, attempt: Attempt) -> Sample:
        return cls(
            binding=attempt.candidate,
            surroundings=context_of(attempt, attempt.facts.peers),
            gang=(attempt, *attempt.gang.companions) if attempt.is_joining else (),
        )

    @property
    def is_grouped(self) -> bool:
        """Whether placements of other bindings may change its eligible clusters."""
        together = [attempt.candidate for attempt in self.gang] or [self.binding]
        return any(map(is_grouped, together))


def look_for(
    profiles: Profiles, samples: Mapping[Hashable, Sample], now: float, working: WorkingCopy
) -> tuple[dict[Hashable, Seen], float]:
    """Return the room for each want, and the CPU seconds that it took to look."""
    started = time.thread_time()
    seen = {}
    for want, sample in samples.items():
        # An error is reported when the binding is tried.
        with suppress(FederationError):
            if sample.gang:
                seen[want] = seen_together(working.fresh_copy(), sample.gang, now)
                continue
            profile = profiles.profile_of(sample.binding)
            seen[want] = find_eligible(working, sample.binding, profile, sample.surroundings, now)
    return seen, time.thread_time() - started


class LimitedNamespaces:
    """Namespaces with quotas; ``names`` are as of the last look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version = ""
        self.names: Collection[str] = ()

    async def have_changed(self) -> bool:
        """Look again; return whether a quota was set, so that bindings may be placed."""
        async with self._store.reading() as read:
            version = await read.quotas.version()
            if version == self._version:
                return False
            # The version is read first, so that a change in between is seen by the next look.
            self.names = await read.quotas.namespaces()
        self._version = version
        return True


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
