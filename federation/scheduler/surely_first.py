"""Clusters where a replica surely fits come before those where grade counts say only that it may.

Pure. A node's grade says how much it has free at least: what asks for more than that fits on some
of the grade's nodes, or on none. Clusters that surely hold no replica are set aside where the
others surely hold all. The notes of estimates say so, by which a replay knows it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import Estimates, Source, with_clauses
from federation.model.placement import Binding, TieBreak
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import SET_ASIDE, Reason, has_code, without_code
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand
from federation.scheduler.division.values import DivisionStrategy

_RANKING: Final = {
    DivisionStrategy.DYNAMIC_WEIGHT,
    DivisionStrategy.AGGREGATED,
    DivisionStrategy.FILL_FIRST,
}


def unsure_c(
    binding: Binding, demand: Demand, availability: Estimates, placed_c: BoolArray
) -> BoolArray | None:
    """Where a replica may fit and none surely does, for replicas that are divided by capacity; None
    where that is nowhere. Nodes hold a replica where the binding is already.
    """
    if binding.placement.tie_break is TieBreak.KARMADA or demand.rule.strategy not in _RANKING:
        return None
    found_c = np.zeros(len(placed_c), np.bool_)
    if availability.sure_c is None:
        found_c[
            [c for c, why in availability.reasons.items() if has_code(why, ReasonCode.SET_ASIDE)]
        ] = True
    else:
        found_c = (availability.source_c == Source.MODELS) & (availability.sure_c == 0)
        found_c &= (availability.replicas_c > 0) & ~placed_c
    return found_c if found_c.any() else None


def with_notes(reasons: Mapping[int, Reason], aside_c: BoolArray) -> dict[int, Reason]:
    """The notes of estimates, by position, once clusters are set aside."""
    noted = without_notes(reasons)
    aside = dict.fromkeys(np.flatnonzero(aside_c).tolist(), SET_ASIDE)
    # It comes first where there is another clause.
    behind = {c: why for c, why in noted.items() if c in aside}
    return noted | with_clauses(aside, behind)


def without_notes(reasons: Mapping[int, Reason]) -> dict[int, Reason]:
    """The notes of estimates where no cluster is set aside."""
    values = {why: without_code(why, ReasonCode.SET_ASIDE) for why in set(reasons.values())}
    return {c: values[why] for c, why in reasons.items() if values[why]}


def is_sure(
    demand: Demand,
    decision: Decision,
    availability: Estimates,
    aside_c: BoolArray,
    prior_c: IntArray,
) -> bool:
    """Whether the decision without the clusters that are set aside stands: all is placed, what is
    added surely fits, and no constraint counts a cluster that is set aside.
    """
    trace = decision.trace
    if decision.outcome is not Outcome.SCHEDULED:
        return False
    counts_groups = any(each.min_groups > 1 for each in demand.constraints)
    if counts_groups and aside_c[trace.selection.order_k].any():
        return False
    if availability.sure_c is None:
        return True
    position_k, share_k = trace.division.position_k, trace.division.share_k
    added_k = share_k - prior_c[position_k]
    is_added_k = added_k > 0
    # Where nothing is added nothing was set aside.
    return bool(is_added_k.any() and (added_k <= availability.sure_c[position_k])[is_added_k].all())
