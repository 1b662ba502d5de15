"""Which taints tolerations cover, for how long, and that looking up finds what trying all does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.model.cluster import Taint, TaintEffect
from federation.model.selectors import UNSCHEDULABLE
from federation.model.tolerations import Tolerations
from federation.model.workload import Toleration, TolerationOperator
from tests.plain_tolerations import untolerated_taint

DEDICATED = Taint(key="dedicated", value="gpu", effect=TaintEffect.NO_SCHEDULE)
KEYS, VALUES = ("", "a", "b"), ("", "x", "y")
TAINTS = st.builds(
    Taint,
    key=st.sampled_from(KEYS[1:]),
    value=st.sampled_from(VALUES),
    effect=st.sampled_from(TaintEffect),
    time_added=st.none() | st.sampled_from((90.0, 100.0)),
)
TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(KEYS),
    operator=st.sampled_from(TolerationOperator),
    value=st.sampled_from(VALUES),
    effect=st.none() | st.sampled_from(TaintEffect),
    toleration_seconds=st.none() | st.sampled_from((-1, 0, 5, 10)),
)


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        (Toleration(key="dedicated", value="gpu"), True),
        (Toleration(key="dedicated", value="cpu"), False),
        (Toleration(key="dedicated"), False),
        (Toleration(key="other", value="gpu"), False),
        (Toleration(key="dedicated", operator=TolerationOperator.EXISTS), True),
        (Toleration(operator=TolerationOperator.EXISTS), True),
        (Toleration(), False),
        (Toleration(key="dedicated", value="gpu", effect=TaintEffect.NO_SCHEDULE), True),
        (Toleration(key="dedicated", value="gpu", effect=TaintEffect.NO_EXECUTE), False),
    ],
)
def test_tolerations(toleration: Toleration, *, covered: bool) -> None:
    assert (Tolerations([toleration]).seconds(DEDICATED) is not None) is covered


def test_the_first_taint_in_the_way_is_named() -> None:
    preferred = Taint(key="spot", effect=TaintEffect.PREFER_NO_SCHEDULE)
    evicting = Taint(key="gone", effect=TaintEffect.NO_EXECUTE)
    assert Tolerations([]).first_untolerated([preferred]) is None
    assert Tolerations([]).first_untolerated([preferred, DEDICATED, evicting]) is DEDICATED
    covering = Tolerations([Toleration(key="dedicated", operator=TolerationOperator.EXISTS)])
    assert covering.first_untolerated([DEDICATED, evicting]) is evicting
    assert covering.first_untolerated([UNSCHEDULABLE]) is UNSCHEDULABLE


@given(
    st.lists(TAINTS, max_size=4),
    st.lists(TOLERATIONS, max_size=5),
    st.none() | st.sampled_from((89.0, 94.9, 95.0, 100.0, 110.0)),
)
def test_what_is_looked_up_is_what_trying_all_finds(
    taints: list[Taint], tolerations: list[Toleration], now: float | None
) -> None:
    found = Tolerations(tolerations).first_untolerated(taints, now)
    assert found == untolerated_taint(taints, tolerations, now)
