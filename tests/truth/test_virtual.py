"""The study in memory: it comes out alike each time, and second looks keep what they promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federation.capacity.second_looks import looked_again_c
from federation.model.arrays import IntArray
from lab.truth.plans import Line, Plan
from lab.truth.virtual import found_in_memory

SMALL = Plan(line=Line.CAREFUL, seed=1, bindings=60, nodes=(14, 15))


def test_a_study_comes_out_alike_each_time() -> None:
    assert found_in_memory(SMALL) == found_in_memory(SMALL)


@pytest.mark.parametrize("seed", [1, 2])
def test_pods_of_second_looks_find_their_nodes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    granted = list[int]()

    def counted(*arguments: Any) -> IntArray:
        found_c = looked_again_c(*arguments)
        granted.append(int(found_c.sum()))
        return found_c

    monkeypatch.setattr("federation.scheduler.promisable.looked_again_c", counted)
    found = found_in_memory(replace(SMALL, seed=seed))
    assert any(granted)
    assert found.promised > 0
    assert found.pending == []
