"""How the answers of several levels become one."""

from __future__ import annotations

import numpy as np

from federation.model.estimate import Bound, LevelAnswer, Merge, Source, merge
from federation.model.reasons import stored_reasons, texts_of


def answer(
    source: Source,
    replicas: list[int | None],
    bound: Bound = Bound.NONE,
    reasons: dict[int, str] | None = None,
) -> LevelAnswer:
    return LevelAnswer(
        source=source,
        replicas_c=np.array([0 if each is None else each for each in replicas], dtype=np.int64),
        answered_c=np.array([each is not None for each in replicas]),
        bound_c=np.full(len(replicas), bound, dtype=np.int8),
        reasons=stored_reasons(reasons or {}),
    )


LEVELS = [
    answer(Source.EXACT, [9, None, None, None], Bound.EXACT, {1: "the agent was late"}),
    answer(Source.POOLS, [5, 7, None, None], Bound.LOWER),
    answer(Source.MODELS, [6, 6, 6, None], reasons={3: "the report has no grade counts"}),
    answer(Source.SUMMARY, [1, 1, 1, None], reasons={3: "the cluster has not reported yet"}),
]


def test_quality_takes_the_best_level_of_each_cluster() -> None:
    estimates = merge(LEVELS, Merge.QUALITY)
    assert estimates.replicas_c.tolist() == [9, 7, 6, 0]
    assert estimates.source_c.tolist() == [Source.EXACT, Source.POOLS, Source.MODELS, Source.NONE]
    assert estimates.bound_c.tolist() == [Bound.EXACT, Bound.LOWER, Bound.NONE, Bound.NONE]
    assert estimates.unknown_c.tolist() == [False, False, False, True]


def test_minimum_takes_the_least_but_models_still_stand_for_the_summary() -> None:
    estimates = merge(LEVELS, Merge.MINIMUM)
    assert estimates.replicas_c.tolist() == [5, 6, 6, 0]
    assert estimates.source_c.tolist() == [Source.POOLS, Source.MODELS, Source.MODELS, Source.NONE]


def test_minimum_takes_a_better_level_where_no_report_answers() -> None:
    levels = [answer(Source.EXACT, [9], Bound.EXACT), answer(Source.SUMMARY, [None])]
    estimates = merge(levels, Merge.MINIMUM)
    assert estimates.replicas_c.tolist() == [9]
    assert estimates.source_c.tolist() == [Source.EXACT]


def test_reasons_of_all_levels_are_kept_the_best_first() -> None:
    assert texts_of(merge(LEVELS, Merge.QUALITY).reasons) == {
        1: "the agent was late",
        3: "the report has no grade counts; the cluster has not reported yet",
    }
