"""The grades of many nodes at once.

Pure: arrays in, arrays and counts out. Must not know the source of the nodes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from federation.model.grades import UNGRADED, ResourceModel, minimums


def grade_of_nodes(model: ResourceModel, free_rn: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each node's position in the model's grades, UNGRADED where a resource is
    over-committed.

    ``free_rn`` has a row for each of ``model.resources`` in base units, 0 where a node lacks one.
    The position is the minimum, over the resources, of the grade whose range holds the free amount.
    """
    bounds = minimums(model)
    position_n = np.full(free_rn.shape[1], len(model.grades) - 1, dtype=np.int64)
    for free_n, name in zip(free_rn, model.resources, strict=True):
        holds_n = np.searchsorted(np.asarray(bounds[name], dtype=np.int64), free_n, side="right")
        np.minimum(position_n, holds_n - 1, out=position_n)
    return position_n


def count_grades(model: ResourceModel, free_rn: npt.NDArray[np.int64]) -> dict[int, int]:
    """Return the node count by grade number, zeros included, without ungraded nodes."""
    position_n = grade_of_nodes(model, free_rn)
    counts = np.bincount(position_n[position_n != UNGRADED], minlength=len(model.grades))
    return {grade.grade: int(count) for grade, count in zip(model.grades, counts, strict=True)}
