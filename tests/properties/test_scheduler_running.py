"""Whatever a plugin answers, it is a sound answer or a failure with the plugin's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from federation.model.cluster import Cluster
from federation.model.errors import PluginFailed
from federation.model.placement import Binding
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import Filter, Score
from federation.scheduler.plugins.run import refusals_by, scores_by
from federation.scheduler.state import ALONE, CycleState

COUNT = 4
STATE = CycleState(
    binding=Binding(name="web"),
    fleet=Fleet.of(Cluster(name=f"m{number}") for number in range(COUNT)),
    available_c=np.zeros(COUNT, np.int64),
    prior_c=np.zeros(COUNT, np.int64),
    placed_c=np.zeros(COUNT, np.bool_),
    tier_c=np.zeros(COUNT, np.int64),
    surroundings=ALONE,
    now=0.0,
)
DTYPES = st.sampled_from([np.bool_, np.int8, np.uint8, np.int64, np.uint64, np.float64, np.str_])
SHAPES = st.sampled_from([(), (COUNT,), (COUNT - 1,), (COUNT, 1)])
ARRAYS = st.tuples(DTYPES, SHAPES).flatmap(lambda each: arrays(each[0], each[1]))
SOUND = arrays(np.int64, COUNT, elements=st.integers(0, 100))
THINGS: st.SearchStrategy[Any] = st.one_of(
    ARRAYS, SOUND, st.none(), st.integers(), st.text(), st.lists(st.integers())
)
PAIRS = st.lists(
    st.one_of(THINGS, st.tuples(THINGS, THINGS), st.tuples(arrays(np.bool_, COUNT), st.text()))
)


def answered(run: Callable[[], Any]) -> tuple[Any, str]:
    """What comes through, or the message that it failed with."""
    try:
        return run(), ""
    except PluginFailed as error:
        return None, error.message


@given(THINGS)
def test_scores_are_scores(answer: Any) -> None:
    plugin = Score(name="Any", run=lambda _: answer, weight=1)
    score_c, failure = answered(lambda: scores_by(plugin, STATE))
    if failure:
        assert failure.startswith("The scheduler plugin Any failed: it ")
        return
    assert (score_c.dtype, score_c.shape) == (np.int64, (COUNT,))
    assert ((score_c >= 0) & (score_c <= 100)).all()
    assert score_c.tolist() == answer.tolist()


@given(st.one_of(THINGS, PAIRS))
def test_refusals_are_refusals(answer: Any) -> None:
    plugin = Filter(name="Any", run=lambda _: answer)
    refusals, failure = answered(lambda: refusals_by(plugin, STATE))
    if failure:
        assert failure.startswith("The scheduler plugin Any failed: it ")
        return
    assert len(refusals) == len(answer)
    for refused_c, reason in refusals:
        assert (refused_c.dtype, refused_c.shape) == (np.bool_, (COUNT,))
        assert reason
        assert reason.isprintable()
