"""Preference for clusters that surely hold a replica over those whose grade counts say only
"maybe".

Pure. The grade of a node is a lower bound of its free resources: a larger request fits on some
nodes of the grade, or on none. Clusters that surely hold no replica are set aside if the others
surely hold all replicas. The reasons of the estimates record it, so that replays repeat it.
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
    """Return the clusters that may hold a replica and surely hold none; None if there is none.

    Only replicas that are divided by capacity are concerned. A cluster that holds the binding
    already is not unsure.
    """
    if binding.placement.tie_break is TieBreak.KARMADA or demand.rule.strategy not in _RANKING:
        return None
    mask_c = np.zeros(len(placed_c), np.bool_)
    if availability.sure_c is None:
        mask_c[
            [c for c, why in availability.reasons.items() if has_code(why, ReasonCode.SET_ASIDE)]
        ] = True
    else:
        mask_c = (availability.source_c == Source.MODELS) & (availability.sure_c == 0)
        mask_c &= (availability.replicas_c > 0) & ~placed_c
    return mask_c if mask_c.any() else None


def with_notes(reasons: Mapping[int, Reason], aside_c: BoolArray) -> dict[int, Reason]:
    """Return the reasons of estimates, by position, after clusters were set aside."""
    noted = without_notes(reasons)
    aside = dict.fromkeys(np.flatnonzero(aside_c).tolist(), SET_ASIDE)
    # The clause stands before other clauses of the same cluster.
    behind = {c: why for c, why in noted.items() if c in aside}
    return noted | with_clauses(aside, behind)


def without_notes(reasons: Mapping[int, Reason]) -> dict[int, Reason]:
    """Return the reasons of estimates when no cluster is set aside."""
    values = {why: without_code(why, ReasonCode.SET_ASIDE) for why in set(reasons.values())}
    return {c: values[why] for c, why in reasons.items() if values[why]}


def is_sure(
    demand: Demand,
    decision: Decision,
    availability: Estimates,
    aside_c: BoolArray,
    prior_c: IntArray,
) -> bool:
    """Return whether the decision without the clusters set aside stands.

    It stands if all replicas are placed, the added ones surely fit, and no constraint counts a
    cluster that is set aside.
    """
    trace = decision.trace
    if decision.outcome is not Outcome.SCHEDULED:
        return False
    counts_groups = any(constraint.min_groups > 1 for constraint in demand.constraints)
    if counts_groups and aside_c[trace.selection.order_k].any():
        return False
    if availability.sure_c is None:
        return True
    position_k, share_k = trace.division.position_k, trace.division.share_k
    added_k = share_k - prior_c[position_k]
    is_added_k = added_k > 0
    # Without an added replica no cluster was set aside.
    return bool(is_added_k.any() and (added_k <= availability.sure_c[position_k])[is_added_k].all())
