"""What there is for a binding: the clusters that let it in, and the room that they have.

Plain functions of their arguments. Must not read or write the store.
"""

from __future__ import annotations

from federation.model.placement import Binding
from federation.model.reasons import Reason
from federation.scheduler.cycle import room_for
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.state import Surroundings
from federation.scheduler.waiting.queue import Seen
from federation.services.binding_ports import Peers
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.working_copy import WorkingCopy


def seen_by(
    working: WorkingCopy,
    binding: Binding,
    profile: Profile,
    surroundings: Surroundings,
    now: float,
) -> Seen:
    """What there is for a binding beside what it has. Raises PluginFailed."""
    fleet = working.snapshot.fleet_at(now)
    asked = binding.certificate or profile.certificate
    passes_c, room_c = room_for(
        binding,
        fleet,
        working.availability(binding, asked),
        now=now,
        profile=profile,
        surroundings=surroundings,
    )
    names, there = fleet.names, room_c.nonzero()[0].tolist()
    return Seen(
        room={names[c]: int(room_c[c]) for c in there},
        reach=frozenset(names[c] for c in passes_c.nonzero()[0].tolist()),
    )


def surroundings_of(
    attempt: Attempt, peers: Peers, triggers: tuple[Reason, ...] = ()
) -> Surroundings:
    """What is known of its binding beyond its own fields, the peers included."""
    observed = attempt.binding.observed_affinity if attempt.adopts else ""
    return Surroundings(
        affinity_peers=peers.affinity,
        anti_affinity_peers=peers.anti_affinity,
        observed_affinity=observed or attempt.observed_affinity,
        triggers=triggers,
    )
