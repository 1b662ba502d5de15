"""The clusters that a binding may use, with their capacity, and its context in the fleet.

Functions of a working copy and an attempt. Must not read or write the store.
"""

from __future__ import annotations

from federation.model.placement import Binding
from federation.model.reasons import Reason
from federation.scheduler.cycle import room_for
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.state import BindingContext
from federation.scheduler.waiting.queue import Seen
from federation.services.binding_ports import Peers
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.working_copy import WorkingCopy


def find_eligible(
    working: WorkingCopy,
    binding: Binding,
    profile: Profile,
    context: BindingContext,
    now: float,
) -> Seen:
    """Return the clusters that pass a binding's filters, and the additional replicas that fit.

    Raises PluginFailed.
    """
    fleet = working.snapshot.fleet_at(now)
    certificate = binding.certificate or profile.certificate
    passes_c, room_c = room_for(
        binding,
        fleet,
        working.availability(binding, certificate),
        now=now,
        profile=profile,
        surroundings=context,
    )
    names = fleet.names
    return Seen(
        room={names[c]: int(room_c[c]) for c in room_c.nonzero()[0].tolist()},
        reach=frozenset(names[c] for c in passes_c.nonzero()[0].tolist()),
    )


def context_of(attempt: Attempt, peers: Peers, triggers: tuple[Reason, ...] = ()) -> BindingContext:
    """Return the context of an attempt's binding: peers, observed affinity group, triggers."""
    stated = attempt.binding.observed_affinity if attempt.adopts else ""
    return BindingContext(
        affinity_peers=peers.affinity,
        anti_affinity_peers=peers.anti_affinity,
        observed_affinity=stated or attempt.observed_affinity,
        triggers=triggers,
    )
