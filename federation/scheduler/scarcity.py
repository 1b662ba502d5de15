"""What is scarce where a binding finds too little room, in one clause.

Must not estimate: it asks who did how much each resource alone would hold. That is worth its time
for decisions that failed, and for no others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, MutableMapping
from dataclasses import replace
from typing import Final

import numpy as np

from federation.model.arrays import IntArray
from federation.model.estimate import Estimates
from federation.model.placement import Binding
from federation.model.quotations import CLAUSE_SEPARATOR, clauses_of
from federation.model.resources import PODS
from federation.model.workload import (
    NodeClaim,
    ReplicaRequirements,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand

# How many more of a binding fit into each cluster.
Estimating = Callable[[Binding], Estimates]

NOBODY: Final[Mapping[int, str]] = {}
_CAPACITY: Final = "Capacity"
_MOST_NOTES: Final = 3
_SHORT: Final = "short of "
# A clause that repeats how many replicas lack a place, and gives no cause.
_COUNTED: Final = re.compile(r"\d+ (?:replica is|replicas are) (?:available|missing)\b")
_ANY_NODE: Final = NodeClaim(tolerations=(Toleration(operator=TolerationOperator.EXISTS),))


def with_scarcity(
    decision: Decision,
    binding: Binding,
    estimating: Estimating,
    *,
    refused: Collection[int] = (),
    untold: Collection[int] = (),
    stuck: Mapping[int, str] = NOBODY,
    remembered: MutableMapping[Hashable, str] | None = None,
) -> Decision:
    """The decision with what is scarce in its reason, where it failed for want of room.

    ``refused`` are the clusters (positions) that had no room for their shares. Of those in
    ``untold`` nothing is said. ``stuck`` says by position whose promises lost their room there.
    ``remembered`` is what was found for others, as long as the estimates stay the same.
    """
    lacking_c = _lacking(decision, binding, refused)
    lacking_c[list(untold)] = 0
    text = _remembered_text(binding, lacking_c, estimating, remembered)
    notes = [note for position, note in stuck.items() if lacking_c[position]]
    clauses = [decision.reason, *([text] if text else []), *notes[:_MOST_NOTES]]
    return replace(decision, reason=CLAUSE_SEPARATOR.join(clauses))


def short_of(decision: Decision) -> str:
    """Name in one clause what the replicas without a place lack; the decision has all clauses."""
    clauses = clauses_of(decision.reason)
    scarce = next((text for text in clauses if text.startswith(_SHORT)), "")
    if scarce:
        return scarce.removeprefix(_SHORT)
    refusal_c = decision.trace.filtering.refusal_c
    if len(refusal_c) and (refusal_c >= 0).all():
        code, count = Counter(refusal_c.tolist()).most_common(1)[0]
        reason = decision.trace.filtering.refusals[code].reason
        return f"suitable clusters: {reason} ({count} of {len(refusal_c)})"
    is_number_alone = _COUNTED.match(clauses[0]) is not None
    return clauses[1] if is_number_alone and len(clauses) > 1 else clauses[0]


def _lacking(decision: Decision, binding: Binding, refused: Collection[int]) -> IntArray:
    """How many more units each cluster would have to hold, 0 where room is not what is wanting."""
    trace, units = decision.trace, Demand.of(binding).units
    share_c = trace.division.share_c
    wanted_c = np.zeros_like(share_c)
    if refused:
        wanted_c[list(refused)] = share_c[list(refused)]
    elif (
        decision.outcome is Outcome.UNSCHEDULABLE
        and not binding.placement.replica_scheduling.limits
        # Everything was divided where a plugin objected.
        and int(share_c.sum()) < units
    ):
        filters = [refusal.filter for refusal in trace.filtering.refusals]
        passes = np.array([*(name == _CAPACITY for name in filters), True])
        wanted_c[passes[trace.filtering.refusal_c]] = units
    has_c = trace.inputs.previous_c
    if binding.components:
        has_c = (has_c >= 0).astype(np.int64)
    lacking_c: IntArray = np.maximum(wanted_c - np.maximum(has_c, 0), 0)
    return lacking_c


def _remembered_text(
    binding: Binding,
    lacking_c: IntArray,
    estimating: Estimating,
    remembered: MutableMapping[Hashable, str] | None,
) -> str:
    """Many that wait ask for the same."""
    if remembered is None or binding.components:
        return _scarcity_text(replace(binding, clusters=()), lacking_c, estimating)
    wanted = binding.requirements
    claim = wanted.node_claim.key if wanted.node_claim else None
    question = frozenset(wanted.request.items()), claim, lacking_c.tobytes()
    text = remembered.get(question)
    if text is None:
        text = _scarcity_text(replace(binding, clusters=()), lacking_c, estimating)
        remembered[question] = text
    return text


def _scarcity_text(binding: Binding, lacking_c: IntArray, estimating: Estimating) -> str:
    """For instance ``short of memory in 3 clusters, cpu in 1``; empty where none is short.

    A cluster is short of the resource of which it has the least, counted in replicas, or of all
    together where each by itself would do.
    """
    if not lacking_c.any():
        return ""
    found = estimating(binding)
    (short,) = ((found.replicas_c < lacking_c) & ~found.unknown_c).nonzero()
    if not len(short):
        return ""
    resources = sorted(_resources(binding) - {PODS})
    names = [PODS, *resources, "nodes that suit", f"{' and '.join(resources)} together"]
    alone_nj = np.array(
        [
            estimating(_asking(binding, name)).replicas_c[short]
            for name in names[: 1 + len(resources)]
        ]
    )
    scarcest_j = alone_nj.argmin(axis=0)
    scarcest_j[alone_nj.min(axis=0) >= lacking_c[short]] = len(names) - 1
    if not alone_nj[0].all():
        on_any_j = estimating(_asking(binding, PODS, _ANY_NODE)).replicas_c[short]
        scarcest_j[(alone_nj[0] == 0) & (on_any_j > 0)] = len(names) - 2
    counted = Counter(names[scarcest] for scarcest in scarcest_j.tolist())
    first, *others = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
    text = f"{_SHORT}{first[0]} in {first[1]} cluster{'s' if first[1] > 1 else ''}"
    return ", ".join([text, *(f"{name} in {count}" for name, count in others)])


def _asking(binding: Binding, resource: str, claim: NodeClaim | None = None) -> Binding:
    """The binding as if it asked for nothing but one resource; on other nodes, if told which."""

    def only(requirements: ReplicaRequirements) -> ReplicaRequirements:
        amount = requirements.request.get(resource, 0)
        return replace(
            requirements,
            request={resource: amount} if amount and resource != PODS else {},
            node_claim=claim or requirements.node_claim,
        )

    return replace(
        binding,
        requirements=only(binding.requirements),
        components=tuple(
            replace(each, requirements=only(each.requirements)) for each in binding.components
        ),
    )


def _resources(binding: Binding) -> set[str]:
    """What any part of it asks for."""
    parts = [each.requirements for each in binding.components] or [binding.requirements]
    return {name for each in parts for name, amount in each.request.items() if amount > 0}
