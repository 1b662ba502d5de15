"""Victims of preemption: the least loss that lets bindings of higher priority fit.

Pure. Must not know capacity: a callback says whether the bindings fit once some replicas are gone.
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

# Those of lowest priority.
MAX_CANDIDATES: Final = 128
NOTHING_HELPS: Final = Reason(ReasonCode.NOTHING_HELPS)
SPENT: Final = Reason(ReasonCode.PREEMPTION_SPENT)
# Replicas preempted within any minute, in all and of one namespace; configuration may change both.
MAX_PREEMPTED: Final = 1000
MAX_PREEMPTED_IN_NAMESPACE: Final = 100
# Up to so many replicas the least loss is searched among all losses (2**12); beyond, it is a loss
# of which no part can be left out.
MAX_EXACT_UNITS: Final = 12

# The replicas that each candidate loses, in the order of the candidates.
Losses: TypeAlias = tuple[int, ...]
Fits: TypeAlias = Callable[[Losses], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Replicas of a binding in a cluster that may be preempted.

    Any number of them if ``divisible``, else all or none. ``placed_at`` is in Unix seconds.
    """

    binding: str
    cluster: str
    priority: int
    replicas: int
    divisible: bool
    placed_at: float

    @property
    def choices(self) -> range:
        """Return the numbers of replicas that may be lost."""
        return range(0, self.replicas + 1, 1 if self.divisible else self.replicas)


def candidate_of(
    binding: Binding, target: TargetCluster, *, waiting: int, running: int = 0
) -> Candidate | None:
    """Return what a binding may lose in a cluster; None: nothing.

    ``waiting`` of its replicas there are on no node yet, ``running`` ones are. A share that may
    shrink loses single replicas, another one all of them. A share that ignores capacity would grow
    back at once, so that it does not shrink by running replicas.
    """
    total = sum(share.replicas for share in binding.clusters)
    may_shrink = (
        binding.placement.partial
        and not binding.components
        and binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
    )
    unprotected = waiting + running
    spare = unprotected if Demand.of(binding).rule.heeds_capacity else waiting
    spare = min(spare, target.replicas, total - (binding.min_available or 0))
    if may_shrink and spare > 0:
        replicas = spare
    elif 0 < target.replicas <= unprotected and may_lose(binding, target.replicas):
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


def ordered_candidates(candidates: Iterable[Candidate], uid: str) -> list[Candidate]:
    """Return the candidates of lowest priority, in the tie order of a workload."""

    def tie_order(candidate: Candidate) -> tuple[bytes, str, str]:
        text = f"{uid}\0{candidate.cluster}\0{candidate.binding}".encode()
        hashed = blake2b(text, digest_size=8).digest() if uid else b""
        return hashed, candidate.cluster, candidate.binding

    least_urgent = sorted(candidates, key=lambda candidate: candidate.priority)[:MAX_CANDIDATES]
    return sorted(least_urgent, key=tie_order)


def may_lose(binding: Binding, replicas: int) -> bool:
    """Return whether at least ``min_available`` replicas remain, or none."""
    remaining = sum(share.replicas for share in binding.clusters) - replicas
    return not remaining or remaining >= (binding.min_available or 0)


def open_clusters(decision: Decision) -> set[int]:
    """Return the clusters (positions) that pass all filters, or lack capacity only."""
    filtering = decision.trace.filtering
    return {
        position
        for position, refusal in enumerate(filtering.refusal_c.tolist())
        if refusal < 0 or filtering.refusals[refusal].filter == "Capacity"
    }


def losses_by_binding(
    candidates: Sequence[Candidate], losses: Losses
) -> Mapping[str, Mapping[str, int]]:
    """Return the replicas that each binding loses, by cluster."""
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
    """Return the clauses about victims for the decision of the preemptor."""
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
    """Return the shares of a binding after it lost replicas."""
    return tuple(
        TargetCluster(name=target.name, replicas=target.replicas - lost.get(target.name, 0))
        for target in binding.clusters
        if target.name not in lost or target.replicas > lost[target.name]
    )


def loss_decision(
    binding: Binding, lost: Mapping[str, int], by: str, names: tuple[str, ...], now: float
) -> Decision:
    """Return the decision of a victim; ``names`` are the clusters of the fleet."""
    shares, preemptor = shares_left(binding, lost), BindingRef.of(by)
    losses = tuple((Amount(count), ClusterName(name)) for name, count in sorted(lost.items()))
    is_divided = binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
    missing = binding.replicas - sum(share.replicas for share in shares)
    replicas = {share.name: share.replicas for share in shares}
    stays = {c: replicas[name] for c, name in enumerate(names) if name in replicas}
    return Decision(
        outcome=Outcome.PARTIAL if shares else Outcome.UNSCHEDULABLE,
        clusters=shares,
        remainder=max(missing, 0) if is_divided else sum(lost.values()),
        reason=Reason.of(ReasonCode.PREEMPTED, preemptor, losses),
        trace=undivided_trace(names, now, stays, Reason.of(ReasonCode.PREEMPTED_BY, preemptor)),
    )


def are_within(
    limit: int, namespace_limit: int, lost: Mapping[str, int], spent: Mapping[str, int]
) -> bool:
    """Return whether preempted replicas, by namespace, stay within both limits.

    ``spent`` are the replicas preempted in the last minute.
    """
    return sum(lost.values()) + sum(spent.values()) <= limit and all(
        count + spent.get(namespace, 0) <= namespace_limit for namespace, count in lost.items()
    )


def least_loss(candidates: Sequence[Candidate], fits: Fits) -> Losses | None:
    """Return what each candidate loses so that the bindings fit; None if they never fit.

    Losses are compared by ``cost``, and no part of the answer can be left out. ``fits`` must be
    monotonic: a candidate that loses more leaves at least as much capacity.
    """
    highest = _least_urgent(candidates, fits)
    if highest is None:
        return None
    spared = _spared(candidates, highest, fits)
    units = sum(
        len(candidate.choices) - 1
        for candidate, loss in zip(candidates, highest, strict=True)
        if loss
    )
    return _least(candidates, highest, spared, fits) if units <= MAX_EXACT_UNITS else spared


def cost(candidates: Sequence[Candidate], losses: Losses) -> tuple[object, ...]:
    """Return the sort key of losses; the smallest is the best.

    First the highest priority that loses replicas, then the number of replicas, then the newest
    placements, then the order of the candidates.
    """
    losing = [position for position, loss in enumerate(losses) if loss]
    return (
        max((candidates[position].priority for position in losing), default=-(2**31)),
        sum(losses),
        sorted((candidates[position].placed_at for position in losing), reverse=True),
        [(position, -losses[position]) for position in losing],
    )


def _least_urgent(candidates: Sequence[Candidate], fits: Fits) -> Losses | None:
    """Return all replicas up to the lowest priority with which the bindings fit; None: they never
    fit.
    """
    priorities = sorted({candidate.priority for candidate in candidates})

    def up_to(priority: int) -> Losses:
        return tuple(
            candidate.replicas if candidate.priority <= priority else 0 for candidate in candidates
        )

    first = bisect_left(priorities, True, key=lambda priority: fits(up_to(priority)))
    return up_to(priorities[first]) if first < len(priorities) else None


def _spared(candidates: Sequence[Candidate], highest: Losses, fits: Fits) -> Losses:
    """Reduce losses until every rest of them is needed.

    The candidates of highest priority, most replicas and newest placement are spared first.
    """
    losses = list(highest)

    def worth(position: int) -> tuple[float, ...]:
        candidate = candidates[position]
        return -candidate.priority, -candidate.replicas, -candidate.placed_at, -position

    for position in sorted(filter(lambda n: highest[n], range(len(highest))), key=worth):

        def fits_with(loss: int, position: int = position) -> bool:
            return fits((*losses[:position], loss, *losses[position + 1 :]))

        choices = [loss for loss in candidates[position].choices if loss <= highest[position]]
        # The binding fits with the last choice, the loss of all replicas.
        losses[position] = choices[bisect_left(choices[:-1], True, key=fits_with)]
    return tuple(losses)


def _least(
    candidates: Sequence[Candidate], highest: Losses, fallback: Losses, fits: Fits
) -> Losses:
    """Return the losses within ``highest`` of least cost; ``fallback`` are some that fit."""
    return next(filter(fits, _cheaper(candidates, highest, fallback)), fallback)


def _cheaper(
    candidates: Sequence[Candidate], highest: Losses, fallback: Losses
) -> Iterator[Losses]:
    """Yield all losses within ``highest`` that cost less than ``fallback``, cheapest first."""
    limit = cost(candidates, fallback)
    choices = [
        [loss for loss in candidate.choices if loss <= limit_of_candidate]
        for candidate, limit_of_candidate in zip(candidates, highest, strict=True)
    ]
    priced = ((cost(candidates, losses), losses) for losses in product(*choices))
    yield from (losses for _, losses in sorted(pair for pair in priced if pair[0] < limit))
