"""Which waiting bindings ask for just the same, so that one is refused where the other is.

Must not look at the fleet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import fields
from operator import attrgetter

import msgspec

from federation.model.placement import Binding, PreemptionPolicy, is_grouped
from federation.model.workload import ObjectReference
from federation.scheduler.demand import Demand
from federation.scheduler.plugins.profile import Filter, Profile, Profiles, Score
from federation.scheduler.plugins.run import is_in_tree
from federation.scheduler.waiting.queue import LONGEST_BACKOFF_SECONDS, Waiter
from federation.services.binding_ports import StoredBinding

DIGEST_BYTES = 16
# What does not decide whether there is room, or is looked at by itself.
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
_asked = attrgetter(*(each.name for each in fields(Binding) if each.name not in _APART))


def waiting_of(
    stored: StoredBinding,
    profiles: Profiles,
    now: float,
    instant: float | None = None,
    limited: Collection[str] = (),
) -> Waiter | None:
    """None where it does not wait, must not be tried, or another of its gang stands for it.

    ``instant`` takes the place of since when it waits. ``limited`` namespaces have quotas.
    """
    binding, wait = stored.binding, stored.wait
    if wait is None or not wait.is_tried or wait.entry not in ("", binding.name):
        return None
    # By whatever clock the next try was set.
    later = min(wait.next_try, now + LONGEST_BACKOFF_SECONDS) if wait.next_try else 0.0
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
    """Equal for bindings of which none can be placed where another is refused."""
    binding = stored.binding
    # Whoever goes on from where it is, or looks at others, is like nobody else.
    is_alone = bool(binding.clusters or binding.eviction_tasks or binding.gang)
    is_alone = is_alone or is_grouped(binding)
    # What others of lower priority would lose for it differs, too.
    is_alone = is_alone or binding.preemption_policy is not PreemptionPolicy.NEVER
    is_alone = is_alone or not _is_plain(profiles.by_name.get(binding.scheduler_name))
    asked = (
        binding.namespace if is_alone or binding.namespace in limited else "",
        binding.name if is_alone else "",
        _resource(binding),
        _asked(binding),
        stored.observed_affinity,
    )
    packed = msgspec.msgpack.encode(asked, order="deterministic")
    return hashlib.blake2b(packed, digest_size=DIGEST_BYTES).digest()


def _resource(binding: Binding) -> ObjectReference:
    """Ties decide who gets how much where room is not looked at, so that one may find it."""
    resource = binding.resource
    heeds_room = Demand.of(binding).rule.heeds_capacity
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        uid="" if heeds_room else resource.uid,
    )


def _is_plain(profile: Profile | None) -> bool:
    """Whether its plugins are known to look at nothing but what a want has."""
    if profile is None:
        return True
    plugins: list[Filter | Score] = [*profile.filters, *profile.scores]
    return not profile.permits and all(is_in_tree(each) for each in plugins)
