"""One decision from what is known: the binding as it will be decided, and the cycle over it.

Plain functions of their arguments, safe in any thread. Must not read or write the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from federation.model.errors import PreconditionFailed
from federation.model.estimate import Estimates
from federation.model.placement import Binding
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.state import Surroundings
from federation.scheduler.triggers import evicting_taints, leaving, triggers_of
from federation.services.fleet.snapshot import FleetSnapshot
from federation.services.ports import Peers, StoredBinding
from federation.services.values import DecisionRecord, Verdict

PLACED = frozenset({Outcome.SCHEDULED, Outcome.PARTIAL})


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """A binding decided and nothing done about it yet.

    ``candidate`` is what was decided, on ``known`` (None: new). ``newest`` is the last decision,
    read only where the candidate says nothing new.
    """

    known: StoredBinding | None
    candidate: Binding
    verdict: Verdict
    newest: DecisionRecord | None = None

    @property
    def is_placed(self) -> bool:
        return self.verdict.decision.outcome in PLACED

    @property
    def standing(self) -> DecisionRecord | None:
        """The newest decision where it still stands: nothing changed, and this one says the same.

        A reschedule that was triggered always is a new decision.
        """
        known, newest, decision = self.known, self.newest, self.verdict.decision
        if known is None or newest is None or self.candidate != known.binding:
            return None
        moved = self.is_placed and decision.clusters != known.binding.clusters
        if moved or newest.binding_generation != self.candidate.generation:
            return None
        return newest if _gist(newest.decision) == _gist(decision) else None


def decide(
    binding: Binding,
    known: StoredBinding | None,
    peers: Peers,
    snapshot: FleetSnapshot,
    availability: Estimates,
    profile: Profile,
    now: float,
    *,
    let_go: str = "",
) -> Verdict:
    """The decision on one snapshot, with why it was made and the reports it was made on.

    ``let_go`` says how what the binding held has ended, "" where it is held still. Clusters with
    NoExecute taints that the binding does not tolerate (any more) count as left.
    """
    fleet = snapshot.fleet_at(now)
    taints = evicting_taints(binding, fleet, now)
    decision = schedule(
        leaving(binding, taints),
        fleet,
        availability,
        now=now,
        profile=profile,
        surroundings=Surroundings(
            affinity_peers=peers.affinity,
            anti_affinity_peers=peers.anti_affinity,
            observed_affinity=known.observed_affinity if known else "",
            triggers=triggers_of(known.binding if known else None, binding, fleet, taints, let_go),
        ),
    )
    return Verdict(decision=decision, evidence=snapshot.evidence_at(now))


def candidate_of(binding: Binding, known: StoredBinding | None, *, adopt: bool) -> Binding:
    """The binding as it will be decided: what is asked for now, on what is known of it.

    Raises PreconditionFailed when the known one has another uid.
    """
    if known is None:
        return replace(binding, generation=1, resource_version=0, fresh=_is_fresh(binding))
    before = known.binding
    if binding.uid and before.uid and binding.uid != before.uid:
        raise other_uid(before, binding.uid)
    candidate = replace(
        binding,
        uid=binding.uid or before.uid,
        clusters=binding.clusters if adopt else before.clusters,
        last_scheduled_time=before.last_scheduled_time,
        generation=before.generation,
        resource_version=before.resource_version,
    )
    if not asks_the_same(candidate, before):
        candidate = replace(candidate, generation=before.generation + 1)
    return replace(candidate, fresh=_is_fresh(candidate))


def asks_the_same(one: Binding, other: Binding) -> bool:
    """Whether two bindings of one name ask for the same, wherever they run."""
    return _spec_of(one) == _spec_of(other)


def other_uid(known: Binding, uid: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"Binding {known.key!r} has metadata.uid {known.uid!r}, not {uid!r}: "
        "delete it before another one takes its name."
    )


def _gist(decision: Decision) -> tuple[object, ...]:
    trace = decision.trace
    return (
        decision.outcome,
        decision.clusters,
        decision.remainder,
        decision.reason,
        trace.profile,
        trace.affinity_group,
    )


def _is_fresh(binding: Binding) -> bool:
    """A reschedule was triggered after the last scheduling; never scheduled is nothing to redo."""
    triggered, last = binding.reschedule_triggered_at, binding.last_scheduled_time
    return triggered is not None and last is not None and triggered > last


def _spec_of(binding: Binding) -> Binding:
    """Only what people ask for: what they name it by and where it runs is left out."""
    return replace(
        binding,
        uid="",
        labels={},
        annotations={},
        clusters=(),
        generation=0,
        resource_version=0,
        fresh=False,
        last_scheduled_time=None,
    )
