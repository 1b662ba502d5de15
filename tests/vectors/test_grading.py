"""Grading of free nodes, as Karmada's modeling package does it."""

from __future__ import annotations

from typing import Any

import numpy as np

from federation.model.grade_counts import count_grades, grade_of_nodes
from federation.model.quantity import parse_quantity
from federation.model.resources import base_units_down
from tests.vectors.loading import for_each, model_of, read_lines

LINES = read_lines("grading")


@for_each(LINES)
def test_grading(line: dict[str, Any]) -> None:
    model = model_of(line["models"])
    free_rn = np.array(
        [
            [
                base_units_down(name, parse_quantity(node.get(name, "0")))
                for node in line["nodes_free"]
            ]
            for name in model.resources
        ],
        dtype=np.int64,
    )
    assert grade_of_nodes(model, free_rn).tolist() == line["index"]
    assert list(count_grades(model, free_rn).values()) == line["counts"]
