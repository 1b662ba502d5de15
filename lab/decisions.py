"""Decisions for tests that only store, send or show them. Must not stand in for the scheduler."""

from __future__ import annotations

import numpy as np

from federation.model.estimate import Bound, Source
from federation.model.reasons import NO_REASON, stored_reason
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.trace import (
    DivisionTrace,
    FilterTrace,
    GroupTrial,
    InputTrace,
    Refusal,
    ScoreTrace,
    SelectionTrace,
    TierFacts,
    Trace,
)


def make_decision(*shares: tuple[str, int], outcome: Outcome = Outcome.SCHEDULED) -> Decision:
    """A decision with these shares; its trace has one cluster more, which a filter refused."""
    names = tuple(sorted({name for name, _ in shares} | {"refused"}))
    share_c = np.array([dict(shares).get(name, 0) for name in names], dtype=np.int64)
    none_c = np.zeros(len(names), dtype=np.int64)
    selected_k = np.flatnonzero(share_c)
    is_whole = outcome is Outcome.SCHEDULED
    return Decision(
        outcome=outcome,
        clusters=tuple(TargetCluster(name=name, replicas=count) for name, count in sorted(shares)),
        remainder=0 if is_whole else 3,
        reason=stored_reason("" if is_whole else "2 clusters lack capacity"),
        trace=Trace(
            clusters=names,
            now=1000.5,
            profile="default-scheduler",
            affinity_group="near",
            trials=(GroupTrial(name="near", outcome=outcome.value, reason=NO_REASON),),
            inputs=InputTrace(
                previous_c=none_c - 1,
                available_c=share_c * 2,
                source_c=np.full(len(names), Source.MODELS, dtype=np.int8),
                bound_c=np.full(len(names), Bound.NONE, dtype=np.int8),
                estimate_reasons={0: stored_reason("the resource model lacks example.com/gpu")},
            ),
            filtering=FilterTrace(
                refusals=(Refusal(filter="ClusterReady", reason=stored_reason("is not ready")),),
                refusal_c=np.where(share_c > 0, -1, 0),
                tier_c=none_c,
            ),
            scoring=ScoreTrace(
                weights={"ClusterLocality": 1},
                scores={"ClusterLocality": none_c},
                total_c=none_c,
            ),
            selection=SelectionTrace(rule="all", order_k=selected_k, group_scores={}, proven=True),
            division=DivisionTrace(
                strategy="Aggregated",
                tie_order="hash",
                tiers=(
                    TierFacts(
                        mode="fresh", wanted=3, target=3, available=9, candidates=len(shares)
                    ),
                ),
                cluster_count=len(names),
                position_k=selected_k,
                weight_k=share_c[selected_k] * 2,
                quota_k=share_c[selected_k] / 2,
                share_k=share_c[selected_k],
                remainder_k=none_c[selected_k],
                tied_k=share_c[selected_k] > 0,
            ),
        ),
    )
