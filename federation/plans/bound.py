"""How many replicas could move at best, by a linear programme.

Pure: one thread and a fixed seed, so that equal questions have equal answers. Must not place
anything: what it leaves out (whole replicas, nodes, spreading) only makes the true best smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from federation.model.arrays import BoolArray, FloatArray, IntArray

_SEED: Final = 1
# What the solver may be wrong by, in replicas.
_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoveQuestion:
    """Bindings (axis b) that are to leave, and the clusters (axis c) that have room for them.

    Of binding b ``units_b`` are to leave, of which each asks for ``request_br`` and counts for
    ``replicas_b`` replicas; cluster c alone has room for ``room_bc`` of them, and ``free_cr`` for
    all. Those at ``needless_b`` need no room elsewhere.
    """

    units_b: IntArray
    replicas_b: IntArray
    needless_b: BoolArray
    request_br: FloatArray
    room_bc: IntArray
    free_cr: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoveBound:
    """No plan moves more than ``replicas``; the relaxed best moves ``units_bc`` there."""

    replicas: int
    units_bc: FloatArray


def most_moved(question: MoveQuestion) -> MoveBound:
    """The bound, by the relaxation in which replicas may be cut."""
    room_bc = np.minimum(question.room_bc, question.units_b[:, None])
    room_bc[question.needless_b] = 0
    needless = question.units_b[question.needless_b] @ question.replicas_b[question.needless_b]
    units_bc = np.zeros(room_bc.shape)
    binding_v, cluster_v = room_bc.nonzero()
    if not len(binding_v):
        return MoveBound(replicas=int(needless), units_bc=units_bc)
    units_v = _solved(question, binding_v, cluster_v, room_bc[binding_v, cluster_v])
    units_bc[binding_v, cluster_v] = units_v
    best = float(units_v @ question.replicas_b[binding_v])
    # A replica is whole, or it does not move.
    whole = int(np.floor(best * (1 + _TOLERANCE) + _TOLERANCE))
    return MoveBound(replicas=int(needless) + whole, units_bc=units_bc)


def _solved(
    question: MoveQuestion, binding_v: IntArray, cluster_v: IntArray, room_v: IntArray
) -> FloatArray:
    """How many units each pair of binding and cluster gets.

    Rows: the units of each binding, then each resource of each cluster.
    """
    import highspy  # noqa: PLC0415 - takes long to load, and few programs ever make a plan

    bindings, clusters = len(question.units_b), len(question.free_cr)
    resources = question.free_cr.shape[1]
    # In parts of what is free, so that bytes and cores are of one size.
    scale_cr = np.maximum(question.free_cr, 1)
    part_vr = question.request_br[binding_v] / scale_cr[cluster_v]
    uses_vr = part_vr > 0
    pairs = len(binding_v)
    row_vr = bindings + cluster_v[:, None] * resources + np.arange(resources)
    starts_v = np.concatenate([[0], np.cumsum(1 + uses_vr.sum(axis=1))])
    index_n = np.empty(starts_v[-1], dtype=np.int32)
    value_n = np.empty(starts_v[-1])
    index_n[starts_v[:-1]], value_n[starts_v[:-1]] = binding_v, 1.0
    rest_n = np.ones(starts_v[-1], dtype=np.bool_)
    rest_n[starts_v[:-1]] = False
    index_n[rest_n], value_n[rest_n] = row_vr[uses_vr], part_vr[uses_vr]
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = pairs, bindings + clusters * resources
    model.sense_ = highspy.ObjSense.kMaximize
    model.col_cost_ = question.replicas_b[binding_v].astype(np.float64)
    model.col_lower_, model.col_upper_ = np.zeros(pairs), room_v.astype(np.float64)
    free_n = (question.free_cr > 0).astype(np.float64).ravel()
    model.row_lower_ = np.full(model.num_row_, -highspy.kHighsInf)
    model.row_upper_ = np.concatenate([question.units_b.astype(np.float64), free_n])
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_, model.a_matrix_.index_ = starts_v.astype(np.int32), index_n
    model.a_matrix_.value_ = value_n
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call] # its stubs leave that out
    for option, value in (("output_flag", False), ("threads", 1), ("random_seed", _SEED)):
        solver.setOptionValue(option, value)
    solver.passModel(model)
    solver.run()
    return np.asarray(solver.getSolution().col_value)
