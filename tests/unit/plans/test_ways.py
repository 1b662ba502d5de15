"""Shares that move as a whole in place of parts of many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from federation.plans.bound import MoveProblem
from federation.services.plans.leaving import chosen, sizes


def question(units: list[int], sizes: list[int]) -> MoveProblem:
    """In one cluster, which has room for all."""
    units_b = np.array(units)
    return MoveProblem(
        units_b=units_b,
        replicas_b=np.ones(len(units), dtype=np.int64),
        needless_b=np.zeros(len(units), dtype=np.bool_),
        request_br=np.array([[size] for size in sizes], dtype=np.float64),
        available_bc=units_b[:, None],
        free_cr=np.array([[1e9]]),
    )


@pytest.mark.parametrize(
    ("units", "sizes", "parts", "expected"),
    [
        # A solver that ends inside of the best: of each an equal part.
        ([10] * 10, [2] * 10, [0.7] * 10, 7),
        ([10] * 10, [2] * 10, [0.3] * 10, 3),
        # One at a corner: whole ones, and a part that is left.
        ([10] * 4, [2] * 4, [1.0, 1.0, 0.6, 0.0], 2),
        ([10] * 4, [2] * 4, [1.0] * 4, 4),
        ([10] * 3, [2] * 3, [0.0] * 3, 0),
    ],
)
def test_no_more_are_chosen_than_parts_add_up_to(
    units: list[int], sizes: list[int], parts: list[float], expected: int
) -> None:
    problem = question(units, sizes)
    units_bc = (problem.units_b * np.array(parts))[:, None]
    positions = chosen(problem, units_bc, problem.request_br[:, 0]).tolist()
    assert len(positions) == expected
    limit = sum(n * size * part for n, size, part in zip(units, sizes, parts, strict=True))
    assert sum(units[b] * sizes[b] for b in positions) <= limit + 1


def test_of_equal_parts_the_smaller_go_first() -> None:
    problem = question([10, 10, 10, 10], [4, 1, 2, 3])
    units_bc = (problem.units_b * 0.6)[:, None]
    positions = chosen(problem, units_bc, problem.request_br[:, 0]).tolist()
    assert positions == [1, 2, 3]


def test_only_what_asks_for_the_same_is_equally_large() -> None:
    request_br = np.array([[2.0, 1.0], [2.0, 0.0], [1.0, 2.0], [2.0, 1.0], [2.0, 2.0]])
    problem = replace(
        question([1] * 5, [1] * 5), request_br=request_br, free_cr=np.array([[10.0, 50.0]])
    )
    assert np.argsort(-sizes(problem), kind="stable").tolist() == [4, 0, 3, 1, 2]
    first, _, _, fourth, _ = sizes(problem).tolist()
    assert first == fourth
