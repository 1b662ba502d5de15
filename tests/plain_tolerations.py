"""Tolerations in the obvious way, one by one: the oracle of ``federation.model.tolerations``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from federation.model.cluster import Taint, TaintEffect
from federation.model.workload import Toleration, TolerationOperator


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint.

    An empty key covers every key, but with Equal the value must still be the taint's.
    """
    if toleration.effect is not None and toleration.effect is not taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case TolerationOperator.EXISTS:
            return True
        case TolerationOperator.EQUAL:
            return toleration.value == taint.value
        case _:
            assert_never(toleration.operator)


def untolerated_taint(
    taints: Iterable[Taint], tolerations: Iterable[Toleration], now: float | None = None
) -> Taint | None:
    """The first taint that keeps a workload away; PreferNoSchedule never does."""
    given = tuple(tolerations)
    for taint in taints:
        if taint.effect is TaintEffect.PREFER_NO_SCHEDULE:
            continue
        lasting = [each for each in given if now is None or not is_over(each, taint, now)]
        if not any(tolerates(toleration, taint) for toleration in lasting):
            return taint
    return None


def is_over(toleration: Toleration, taint: Taint, now: float) -> bool:
    """Whether its seconds, which limit NoExecute only, have passed since the taint came."""
    if taint.effect is not TaintEffect.NO_EXECUTE or toleration.toleration_seconds is None:
        return False
    added = now if taint.time_added is None else taint.time_added
    return now >= added + max(toleration.toleration_seconds, 0)
