"""Grading of free nodes, as Karmada's modeling package does it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from federation.model.grades import count_grades, grade_of_nodes
from federation.model.quantity import parse_quantity
from federation.model.resources import base_units_down
from tests.vectors.loading import model_of, read_lines

LINES = read_lines("grading")


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line["id"]))
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
