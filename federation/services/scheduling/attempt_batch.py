"""Attempts as a batch: decided one after the other on one working copy.

Plain functions and values of one thread. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from federation.model.placement import Binding, groups_of
from federation.model.reasons import Reason
from federation.model.workload import TargetCluster
from federation.scheduler.decide import Places
from federation.scheduler.state import BindingContext
from federation.scheduler.triggers import evicting_taints, leaving
from federation.services.binding_ports import Peers
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.deciding import decide_anew
from federation.services.scheduling.eligible_clusters import find_eligible
from federation.services.scheduling.hooks import let_go
from federation.services.scheduling.verdicts import refuse, standing_of, tell
from federation.services.scheduling.working_copy import WorkingCopy

# An attempt that goes with another one, and the names of the clusters where it counts.
Companion: TypeAlias = tuple[Attempt, frozenset[str]]


@dataclass(kw_only=True, eq=False)
class AttemptBatch:
    """A ``Batch`` of attempts. Decisions and errors are written into the attempts."""

    working: WorkingCopy
    attempts: Sequence[Attempt]
    now: float

    def __post_init__(self) -> None:
        self._reset_quotas()

    @property
    def count(self) -> int:
        """Return how many attempts there are."""
        return len(self.attempts)

    @cached_property
    def remaining(self) -> Sequence[Binding]:
        """The bindings without the clusters that they have to leave."""
        fleet = self.working.snapshot.fleet_at(self.now)
        candidates = [attempt.candidate for attempt in self.attempts]
        return [
            leaving(candidate, evicting_taints(candidate, fleet, self.now))
            for candidate in candidates
        ]

    def decide(self, position: int, places: Places) -> bool:
        """Decide an attempt anew, beside those that go with it."""
        attempt = self.attempts[position]
        decided = position if is_together(attempt) else 0
        peers = peers_beside(attempt, self._companions(position, places, decided))
        decide_anew(self.working, attempt, self.now, peers)
        return has_place(attempt)

    def room(self, position: int, places: Places) -> Mapping[str, int]:
        """Return the room in each cluster, wherever the group of the binding goes."""
        attempt = self.attempts[position]
        peers = peers_beside(attempt, self._companions(position, places, 0))
        context = BindingContext(
            affinity_peers=peers.affinity,
            anti_affinity_peers=peers.anti_affinity,
            observed_affinity=attempt.observed_affinity,
        )
        return find_eligible(
            self.working, self.remaining[position], attempt.profile, context, self.now
        ).room

    def lack(self, position: int) -> Reason:
        """Return what an attempt without a place lacks."""
        return self.attempts[position].lack

    def undo(self) -> None:
        """Give back all that was promised in the working copy, and all that quotas gave."""
        self.working.drop_promises()
        self._reset_quotas()

    def withdraw(self, position: int, why: Reason) -> None:
        """Let nothing come of a decision. An error of the first one is that of its companions."""
        attempt = self.attempts[position]
        attempt.result.requested = attempt.result.reserved = None
        let_go([attempt])
        if attempt.is_companion:
            attempt.error = attempt.error or self.attempts[0].error
        if attempt.error is not None or not why:
            return
        if attempt.is_placed:
            refuse(attempt, {"": why})
            attempt.result.standing = standing_of(attempt)
        else:
            tell(attempt, why)

    def _reset_quotas(self) -> None:
        for attempt in self.attempts:
            if attempt.facts.quota is not None:
                attempt.facts.quota.used = attempt.facts.quota.read

    def _companions(self, position: int, places: Places, decided: int) -> Iterator[Companion]:
        """Yield the other attempts: of so many that are decided, the clusters where they went.

        Those without a place, and those that are not decided yet, count at ``places``.
        """
        for other, attempt in enumerate(self.attempts):
            if other < decided and has_place(attempt):
                yield attempt, _names(attempt.decision.clusters)
            elif other != position and other in places:
                yield attempt, places[other]


def is_together(attempt: Attempt) -> bool:
    """Tell whether it is placed with others or not at all."""
    return bool(attempt.atomic) or attempt.is_joining or attempt.is_companion


def has_place(attempt: Attempt) -> bool:
    """Tell whether a decision was made that places it."""
    return attempt.error is None and attempt.is_placed


def placed(attempts: Iterable[Attempt]) -> Iterator[Companion]:
    """Yield the attempts whose decisions place them, each with the names of its clusters."""
    for attempt in attempts:
        if has_place(attempt):
            yield attempt, _names(attempt.decision.clusters)


def peers_beside(attempt: Attempt, companions: Iterable[Companion]) -> Peers:
    """Return the peers as they were read, with companions where these are by now."""
    group, anti_group = groups_of(attempt.candidate)
    if not (group or anti_group):
        return attempt.facts.peers
    together, apart = [*attempt.facts.peers.affinity], [*attempt.facts.peers.anti_affinity]
    for companion, names in companions:
        if companion.binding.namespace != attempt.binding.namespace:
            continue
        its_group, its_anti_group = groups_of(companion.candidate)
        former = _names(companion.former.clusters if companion.former else ())
        for own, other, places in (
            (group, its_group, together),
            (anti_group, its_anti_group, apart),
        ):
            if own and own == other:
                if former in places:
                    places.remove(former)
                if names:
                    places.append(names)
    return Peers(affinity=tuple(together), anti_affinity=tuple(apart))


def _names(clusters: Iterable[TargetCluster]) -> frozenset[str]:
    return frozenset(target.name for target in clusters)
