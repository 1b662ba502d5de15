"""One decision: a draft on a fleet, divided by what a capacity model offers, and reserved in it.

Every decision runs through here: of the service, of simulations, of replays and of what-ifs. They
differ in their capacity model alone. Pure: must not store, measure or wait.

    decide(
        fleet: Fleet,
        draft: Draft,
        capacity: CapacityModel[R],
        now: float,                    # Unix seconds
    ) -> Decided[R]                    # Raises PluginFailed, and what the capacity model raises
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar

from federation.capacity.reserve import Refused
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate
from federation.model.reasons import NO_REASON, Reason
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.promisable import stuck_notes, without_room
from federation.scheduler.scarcity import with_scarcity
from federation.scheduler.state import NO_CONTEXT, BindingContext
from federation.scheduler.triggers import leaving

LAPSED: Final = "what was promised there has ended, and too little room is left for it"

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A binding that is being decided.

    ``binding`` is as it was asked for, in the clusters where it runs. ``remaining`` is without the
    clusters that it has to leave: the cycle reads that. ``evicting`` has the taints for which it
    leaves them, by cluster. ``unreserved`` are shares of ``binding`` for which nothing is reserved
    any more. Each of them stays where its cluster has capacity for it, and leaves the cluster
    otherwise.
    """

    binding: Binding
    remaining: Binding
    profile: Profile
    surroundings: BindingContext = NO_CONTEXT
    evicting: Mapping[str, str] = field(default_factory=dict)
    unreserved: Sequence[TargetCluster] = ()

    @classmethod
    def of_inputs(cls, inputs: DecisionInputs) -> Self:
        """Return the draft of a decision that was made on these inputs."""
        return cls(
            binding=inputs.binding,
            remaining=inputs.binding,
            profile=inputs.profile,
            surroundings=inputs.surroundings,
        )

    @property
    def certificate(self) -> Certificate | None:
        """The certificate that is asked for, None where any will do."""
        return self.binding.certificate or self.profile.certificate


class OfferedCapacity(NamedTuple):
    """The capacity that a draft may use.

    ``kept_for`` names the bindings for which the rest is kept, NO_REASON where all is offered.
    """

    estimates: Estimates
    kept_for: Reason = NO_REASON


class Scarcity(NamedTuple):
    """The means to say what is scarce, as ``with_scarcity`` takes them.

    ``estimate`` is asked about bindings that run nowhere. Nothing is said of ``unexplained``
    clusters (positions). ``remembered`` holds earlier answers, as long as the estimates stay.
    """

    estimate: Callable[[Binding], Estimates]
    unexplained: Collection[int] = ()
    remembered: MutableMapping[Hashable, Reason] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decided(Generic[R]):
    """A decision, the inputs that it was made on, and what was reserved for it.

    ``lapsed`` says of unreserved shares why they leave their clusters. ``is_refined``: a second
    look granted some of the shares. ``refused`` says by cluster why shares found no capacity, or
    under "" why nothing could be reserved for any of them.
    """

    decision: Decision
    inputs: DecisionInputs
    lapsed: Mapping[str, str] = field(default_factory=dict)
    is_refined: bool = False
    reserved: R | None = None
    refused: Mapping[str, Reason] = field(default_factory=dict)


class CapacityModel(Protocol[R]):
    """The capacity of a fleet as one kind of decision sees it. Belongs to one draft."""

    def available(self, draft: Draft) -> OfferedCapacity:
        """Return how many more units fit in each cluster, beside what others have first."""
        ...

    def refine(self, draft: Draft, decided: Decided[R], estimates: Estimates) -> Estimates | None:
        """Look again where a draft finds no capacity in the estimates; None where that is all."""
        ...

    def reserve(self, draft: Draft, decided: Decided[R]) -> R | Refused | None:
        """Reserve all shares of a decision, or none; None where nothing has to be reserved."""
        ...

    def scarcity(self, draft: Draft) -> Scarcity | None:
        """Return the means to say what is scarce; None where nothing is said."""
        ...


def decide(fleet: Fleet, draft: Draft, capacity: CapacityModel[R], now: float) -> Decided[R]:
    """Decide where the replicas of a draft go, and reserve the capacity for all of them, or none.

    Raises PluginFailed, and what the capacity model raises.
    """
    estimates, kept_for = capacity.available(draft)
    decided: Decided[R] = scheduled(fleet, draft, estimates, now)
    if decided.decision.outcome is Outcome.UNSCHEDULABLE and not kept_for:
        refined = capacity.refine(draft, decided, estimates)
        if refined is not None:
            if (refined.replicas_c > estimates.replicas_c).any():
                decided = replace(scheduled(fleet, draft, refined, now), is_refined=True)
            else:
                # The cycle would come to the same: only its notes differ.
                decided = replace(decided, decision=_noted(decided.decision, refined.reasons))
    if not decided.decision.is_placed:
        decision = _explained(fleet, draft, capacity, decided.decision, ())
        if kept_for:
            decision = decision.explained(kept_for)
        return replace(decided, decision=decision)
    answer = capacity.reserve(draft, decided)
    if not isinstance(answer, Refused):
        return replace(decided, reserved=answer)
    decision = without_room(decided.decision, answer.reasons)
    if "" not in answer.reasons:
        decision = _explained(fleet, draft, capacity, decision, answer.reasons)
    return replace(decided, decision=decision, refused=answer.reasons)


def scheduled(fleet: Fleet, draft: Draft, estimates: Estimates, now: float) -> Decided[R]:
    """Run the cycle over a draft on these estimates; nothing is reserved. Raises PluginFailed."""
    estimates, lapsed = _beside_unreserved(fleet, draft, estimates)
    binding, surroundings = draft.remaining, draft.surroundings
    if lapsed:
        binding = leaving(binding, lapsed)
        surroundings = replace(surroundings, is_settled=False)
    inputs = DecisionInputs(
        binding=binding, fleet=fleet, profile=draft.profile, surroundings=surroundings
    )
    return Decided(decision=inputs.schedule(estimates, now), inputs=inputs, lapsed=lapsed)


def _beside_unreserved(
    fleet: Fleet, draft: Draft, estimates: Estimates
) -> tuple[Estimates, Mapping[str, str]]:
    """Return the estimates beside shares that find capacity again, and the shares that find none.

    A share counts as the binding's own where something is reserved for it, and nowhere else. So an
    unreserved one takes of what is available, or leaves its cluster for a reason.
    """
    if not draft.unreserved:
        return estimates, {}
    replicas_c, lapsed = estimates.replicas_c.copy(), dict[str, str]()
    for share in draft.unreserved:
        position = fleet.index.get(share.name)
        if position is None:
            continue
        units = 1 if draft.binding.components else share.replicas
        if replicas_c[position] >= units:
            replicas_c[position] -= units
        else:
            lapsed[share.name] = LAPSED
    return replace(estimates, replicas_c=replicas_c), lapsed


def _noted(decision: Decision, notes: Mapping[int, Reason]) -> Decision:
    """Add notes on the estimates of clusters (positions) that have none yet."""
    trace = decision.trace
    reasons = {**notes, **trace.inputs.estimate_reasons}
    inputs = replace(trace.inputs, estimate_reasons=reasons)
    return replace(decision, trace=replace(trace, inputs=inputs))


def _explained(
    fleet: Fleet,
    draft: Draft,
    capacity: CapacityModel[R],
    decision: Decision,
    refused_in: Collection[str],
) -> Decision:
    """Add to the reason what is scarce, in clusters that refused their shares or in all."""
    scarcity = capacity.scarcity(draft)
    if scarcity is None:
        return decision
    return with_scarcity(
        decision,
        draft.binding,
        scarcity.estimate,
        refused=[fleet.index[name] for name in refused_in if name in fleet.index],
        untold=scarcity.unexplained,
        stuck=stuck_notes(decision.trace.inputs.estimate_reasons, fleet.names),
        remembered=scarcity.remembered,
    )
