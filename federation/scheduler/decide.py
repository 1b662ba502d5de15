"""One decision, and bindings that are decided one after the other, together or not at all.

Every decision runs through here: of the service, of simulations, of replays and of what-ifs. They
differ in their capacity model alone, and bring a batch of their own. Pure: must not store, measure
or wait.

    decide(
        fleet: Fleet,
        draft: Draft,
        capacity: CapacityModel[R],
        now: float,                    # Unix seconds
    ) -> Decided[R]                    # Raises PluginFailed, and what the capacity model raises
    decide_each(batch: Batch, places: Places = NO_PLACES) -> tuple[int, ...]
    decide_moves(batch: Batch) -> None
    settle_gang(batch: Batch, gang: Gang, missed: Sequence[int], gate: Reason) -> None
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from federation.capacity.reserve import Refused
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate, Gang
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, Word
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.demand import Demand
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import Profile
from federation.scheduler.promisable import stuck_notes, without_room
from federation.scheduler.scarcity import with_scarcity
from federation.scheduler.state import NO_CONTEXT, BindingContext
from federation.scheduler.triggers import leaving
from federation.scheduler.waiting.gangs import unplaced_reason

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


# Names of clusters, by the position of a binding in its batch.
Places: TypeAlias = Mapping[int, frozenset[str]]
NO_PLACES: Final[Places] = MappingProxyType({})


class Batch(Protocol):
    """Bindings that share one capacity, and what was decided of each so far.

    ``remaining`` are the bindings without the clusters that they have to leave.
    """

    @property
    def count(self) -> int:
        """Return how many bindings there are."""
        ...

    @property
    def remaining(self) -> Sequence[Binding]: ...

    def decide(self, position: int, places: Places) -> bool:
        """Decide a binding; return whether it has a place.

        Those before it count where they went. The others count at ``places``, and so do those
        before it that have no place.
        """
        ...

    def room(self, position: int, places: Places) -> Mapping[str, int]:
        """Return how many of its units each cluster could take, while others count at places."""
        ...

    def lack(self, position: int) -> Reason:
        """Return what a binding without a place lacks."""
        ...

    def undo(self) -> None:
        """Give back all that was taken for the batch. Its decisions stay readable."""
        ...

    def withdraw(self, position: int, why: Reason) -> None:
        """Let nothing come of a decision, because of others.

        With NO_REASON its own reason says why already.
        """
        ...


def decide_each(batch: Batch, places: Places = NO_PLACES) -> tuple[int, ...]:
    """Decide all bindings; return the positions of those without a place.

    A binding that is not decided yet counts at ``places``.
    """
    return tuple(
        [position for position in range(batch.count) if not batch.decide(position, places)]
    )


def decide_moves(batch: Batch) -> None:
    """Decide bindings that go together: all of them get a place, or all stay where they are.

    Where the decisions one by one leave a binding without a place, each cluster is tried that
    could take all of them.
    """
    remaining = batch.remaining
    staying = {position: _names(binding) for position, binding in enumerate(remaining)}
    missed = decide_each(batch, staying)
    if not missed:
        return
    batch.undo()
    rooms = [batch.room(position, staying) for position in staying]
    common = common_clusters(rooms, [Demand.of(binding).units for binding in remaining])
    for name in common:
        if not decide_each(batch, dict.fromkeys(staying, frozenset((name,)))):
            return
        batch.undo()
    if common:
        # The first try looked at all clusters: the reasons are those of that try.
        missed = decide_each(batch, staying)
        batch.undo()
    why = stays_reason(remaining[missed[0]].name, batch.lack(missed[0]))
    _withdraw_all(batch, why, missed)


def settle_gang(batch: Batch, gang: Gang, missed: Sequence[int], gate: Reason = NO_REASON) -> None:
    """Let a gang have its places where it has all of them, and wait otherwise.

    The positions ``missed`` have no place. ``gate`` says what the whole gang waits for.
    """
    if gate:
        why, missed = gate, ()
    elif missed:
        name, lack = batch.remaining[missed[0]].name, batch.lack(missed[0])
        why = unplaced_reason(gang, name, lack, len(missed) - 1)
    else:
        return
    batch.undo()
    _withdraw_all(batch, why, missed)


def _withdraw_all(batch: Batch, why: Reason, missed: Sequence[int]) -> None:
    for position in range(batch.count):
        batch.withdraw(position, NO_REASON if position in missed else why)


def _names(binding: Binding) -> frozenset[str]:
    return frozenset(target.name for target in binding.clusters)


# Each one costs a decision for every binding of the group.
MAX_COMMON_CLUSTERS: Final = 10


def stays_reason(name: str, why: Reason) -> Reason:
    """Return why a binding stays: another one of its group, of that name, has no place."""
    return Reason.of(ReasonCode.COMPANION_STAYS, Word(name), why)


def common_clusters(rooms: Sequence[Mapping[str, int]], units: Sequence[int]) -> list[str]:
    """Return the clusters where each binding alone has capacity for all its units, at most
    MAX_COMMON_CLUSTERS: first those that leave most capacity to the binding with the least.

    ``rooms`` says by cluster how many units of each binding fit.
    """
    spare: dict[str, int] = {}
    for room, count in zip(rooms, units, strict=True):
        for name, replicas in room.items():
            spare[name] = min(spare.get(name, replicas - count), replicas - count)
    common = [
        name for name, least in spare.items() if least >= 0 and all(name in room for room in rooms)
    ]
    return sorted(common, key=lambda name: (-spare[name], name))[:MAX_COMMON_CLUSTERS]
