"""Which replicas make room for bindings of higher priority, with the least loss, and what is left
to those that lose them.

Pure. Must not know rooms: it asks whether the bindings fit once some replicas are gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import product
from typing import Final, TypeAlias

from federation.model.placement import Binding, SchedulingType
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, BindingRef, ClusterName, Reason
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand
from federation.scheduler.trace import undivided_trace

# Of the least urgent ones.
MOST_CANDIDATES: Final = 128
NOTHING_HELPS: Final = Reason(ReasonCode.NOTHING_HELPS)
SPENT: Final = Reason(ReasonCode.PREEMPTION_SPENT)
# Within any minute, where nobody says otherwise.
MOST_REPLICAS: Final = 1000
MOST_OF_NAMESPACE: Final = 100
# With so many choices the least loss of all is looked for; with more one that cannot be made less.
MOST_EXACT_UNITS: Final = 12

# How many replicas each candidate loses.
Losses: TypeAlias = tuple[int, ...]
Fits: TypeAlias = Callable[[Losses], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Replicas of a binding in a cluster that may be taken: any number of them where it is
    ``divisible``, else all or none. ``placed_at`` is in Unix seconds.
    """

    binding: str
    cluster: str
    priority: int
    replicas: int
    divisible: bool
    placed_at: float

    @property
    def choices(self) -> range:
        return range(0, self.replicas + 1, 1 if self.divisible else self.replicas)


def candidate_of(
    binding: Binding, target: TargetCluster, *, waiting: int, running: int = 0
) -> Candidate | None:
    """What a binding may lose in a cluster, where so many of its replicas are on no node yet, and
    so many are: of a share that may shrink single replicas, else all of it. One that ignores what
    fits would grow back at once: it does not shrink by what runs.
    """
    total = sum(each.replicas for each in binding.clusters)
    may_shrink = (
        binding.placement.partial
        and not binding.components
        and binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
    )
    every = waiting + running
    spare = every if Demand.of(binding).rule.heeds_capacity else waiting
    spare = min(spare, target.replicas, total - (binding.min_available or 0))
    if may_shrink and spare > 0:
        replicas = spare
    elif 0 < target.replicas <= every and may_lose(binding, target.replicas):
        replicas, may_shrink = target.replicas, False
    else:
        return None
    return Candidate(
        binding=binding.key,
        cluster=target.name,
        priority=binding.priority,
        replicas=replicas,
        divisible=may_shrink,
        placed_at=binding.last_scheduled_time or 0.0,
    )


def ordered_candidates(found: Iterable[Candidate], uid: str) -> list[Candidate]:
    """The least urgent ones, in the tie order of a workload."""

    def tie_order(candidate: Candidate) -> tuple[bytes, str, str]:
        text = f"{uid}\0{candidate.cluster}\0{candidate.binding}".encode()
        hashed = blake2b(text, digest_size=8).digest() if uid else b""
        return hashed, candidate.cluster, candidate.binding

    least_urgent = sorted(found, key=lambda each: each.priority)[:MOST_CANDIDATES]
    return sorted(least_urgent, key=tie_order)


def may_lose(binding: Binding, replicas: int) -> bool:
    """Whether as many as it asks for are left, or none."""
    left = sum(each.replicas for each in binding.clusters) - replicas
    return not left or left >= (binding.min_available or 0)


def open_clusters(decision: Decision) -> set[int]:
    """The clusters, by position, that let in who found no room, had they some."""
    filtering = decision.trace.filtering
    return {
        position
        for position, refusal in enumerate(filtering.refusal_c.tolist())
        if refusal < 0 or filtering.refusals[refusal].filter == "Capacity"
    }


def losses_by_binding(
    candidates: Sequence[Candidate], losses: Losses
) -> Mapping[str, Mapping[str, int]]:
    """What each loses, by cluster."""
    lost: dict[str, dict[str, int]] = {}
    for candidate, loss in zip(candidates, losses, strict=True):
        if loss:
            lost.setdefault(candidate.binding, {})[candidate.cluster] = loss
    return lost


def losses_by_namespace(candidates: Sequence[Candidate], losses: Losses) -> Mapping[str, int]:
    """Return how many replicas the bindings of each namespace lose."""
    lost = Counter[str]()
    for candidate, loss in zip(candidates, losses, strict=True):
        lost[candidate.binding.rpartition("/")[0]] += loss
    return +lost


def loss_reasons(candidates: Sequence[Candidate], losses: Losses) -> tuple[Reason, ...]:
    """What the decision of who preempts says of them."""
    return tuple(
        Reason.of(
            ReasonCode.PREEMPTS,
            BindingRef.of(candidate.binding),
            Amount(loss),
            ClusterName(candidate.cluster),
            Amount(candidate.priority),
        )
        for candidate, loss in zip(candidates, losses, strict=True)
        if loss
    )


def shares_left(binding: Binding, lost: Mapping[str, int]) -> tuple[TargetCluster, ...]:
    """Where it is with so much less."""
    return tuple(
        TargetCluster(name=target.name, replicas=target.replicas - lost.get(target.name, 0))
        for target in binding.clusters
        if target.name not in lost or target.replicas > lost[target.name]
    )


def loss_decision(
    binding: Binding, lost: Mapping[str, int], by: str, names: tuple[str, ...], now: float
) -> Decision:
    """What is decided of who loses so much in a fleet of clusters of these names."""
    left, preemptor = shares_left(binding, lost), BindingRef.of(by)
    losses = tuple((Amount(count), ClusterName(name)) for name, count in sorted(lost.items()))
    is_divided = binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
    missing = binding.replicas - sum(each.replicas for each in left)
    kept = {each.name: each.replicas for each in left}
    stays = {position: kept[name] for position, name in enumerate(names) if name in kept}
    return Decision(
        outcome=Outcome.PARTIAL if left else Outcome.UNSCHEDULABLE,
        clusters=left,
        remainder=max(missing, 0) if is_divided else sum(lost.values()),
        reason=Reason.of(ReasonCode.PREEMPTED, preemptor, losses),
        trace=undivided_trace(names, now, stays, Reason.of(ReasonCode.PREEMPTED_BY, preemptor)),
    )


def are_within(
    most: int, most_of_namespace: int, lost: Mapping[str, int], spent: Mapping[str, int]
) -> bool:
    """Whether so many replicas may be preempted, by namespace, where so many were of late."""
    return sum(lost.values()) + sum(spent.values()) <= most and all(
        count + spent.get(namespace, 0) <= most_of_namespace for namespace, count in lost.items()
    )


def least_loss(candidates: Sequence[Candidate], fits: Fits) -> Losses | None:
    """What each candidate loses so that the binding fits; None where it does not without all.

    First the highest priority that loses anything is least, then the replicas are fewest, then
    those placed last are spared, then earlier candidates lose first. No part of the answer can be
    left out. Who loses more leaves at least as much room.
    """
    most = _least_urgent(candidates, fits)
    if most is None:
        return None
    found = _spared(candidates, most, fits)
    units = sum(len(each.choices) - 1 for each, loss in zip(candidates, most, strict=True) if loss)
    return _least(candidates, most, found, fits) if units <= MOST_EXACT_UNITS else found


def cost(candidates: Sequence[Candidate], losses: Losses) -> tuple[object, ...]:
    """What losses are compared by: less is better."""
    losing = [position for position, loss in enumerate(losses) if loss]
    return (
        max((candidates[position].priority for position in losing), default=-(2**31)),
        sum(losses),
        sorted((candidates[position].placed_at for position in losing), reverse=True),
        [(position, -losses[position]) for position in losing],
    )


def _least_urgent(candidates: Sequence[Candidate], fits: Fits) -> Losses | None:
    """Everything of the priorities up to the least one with which the binding fits."""
    priorities = sorted({each.priority for each in candidates})

    def up_to(priority: int) -> Losses:
        return tuple(each.replicas if each.priority <= priority else 0 for each in candidates)

    first = bisect_left(priorities, True, key=lambda priority: fits(up_to(priority)))
    return up_to(priorities[first]) if first < len(priorities) else None


def _spared(candidates: Sequence[Candidate], most: Losses, fits: Fits) -> Losses:
    """Of these losses those without which the binding does not fit; who is worth most is spared
    first.
    """
    losses = list(most)

    def worth(position: int) -> tuple[float, ...]:
        candidate = candidates[position]
        return -candidate.priority, -candidate.replicas, -candidate.placed_at, -position

    for position in sorted(filter(lambda each: most[each], range(len(most))), key=worth):

        def fits_with(loss: int, position: int = position) -> bool:
            return fits((*losses[:position], loss, *losses[position + 1 :]))

        choices = [each for each in candidates[position].choices if each <= most[position]]
        # With all of it the binding fits.
        losses[position] = choices[bisect_left(choices[:-1], True, key=fits_with)]
    return tuple(losses)


def _least(candidates: Sequence[Candidate], most: Losses, found: Losses, fits: Fits) -> Losses:
    """The least losses of all within ``most``; ``found`` are some with which it fits."""
    return next(filter(fits, _cheaper(candidates, most, found)), found)


def _cheaper(candidates: Sequence[Candidate], most: Losses, found: Losses) -> Iterator[Losses]:
    """All losses within ``most`` that cost less than those found, the least first."""
    limit = cost(candidates, found)
    choices = [
        [loss for loss in each.choices if loss <= highest]
        for each, highest in zip(candidates, most, strict=True)
    ]
    priced = ((cost(candidates, losses), losses) for losses in product(*choices))
    yield from (losses for _, losses in sorted(each for each in priced if each[0] < limit))
