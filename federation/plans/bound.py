"""How much plans could do at best, by linear programmes.

Pure: one thread and a fixed seed, so that equal questions have equal answers. Must not place
anything: what it leaves out (whole replicas, nodes, spreading) only makes the true best smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, FloatArray, IntArray

_SEED: Final = 1
# Of HiGHS: which simplex method.
_PRIMAL: Final = 4
# Beyond that an interior point takes seconds, and the simplex method minutes.
_MOST_SIMPLEX_COLUMNS: Final = 100_000
# What the solver may be wrong by, in parts and in replicas.
_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoveQuestion:
    """Shares of bindings (axis b) that may leave, and the clusters (axis c) with room for them.

    Of share b ``units_b`` may leave, of which each asks for ``request_br`` and counts for
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
    """No plan does more than ``most``; the relaxed best moves ``units_bc`` there."""

    most: float
    units_bc: FloatArray

    @property
    def whole(self) -> int:
        """The same of what is whole, or is not done."""
        return int(np.floor(self.most * (1 + _TOLERANCE) + _TOLERANCE))


def most_moved(question: MoveQuestion, room: float = 1.0) -> MoveBound:
    """How many replicas could move, if they could be cut.

    The relaxed best takes no more than that part of the ``room`` there is. The bound is of all.
    """
    needless = question.units_b[question.needless_b] @ question.replicas_b[question.needless_b]
    moves = _Moves(question)
    moves.programme.row(question.units_b)
    moves.add_rooms(room)
    moves.programme.add(moves.share_v, moves.columns, np.ones(len(moves.columns)))
    cost_v = question.replicas_b[moves.share_v].astype(np.float64)
    best, units_v = moves.programme.solved(cost_v, moves.most_v)
    return MoveBound(most=int(needless) + best, units_bc=moves.spread(units_v))


def most_levelled(
    question: MoveQuestion, home_b: IntArray, amount_b: IntArray, over_c: FloatArray
) -> MoveBound:
    """How much of what clusters have above their level, ``over_c``, could leave them: a unit of
    share b takes ``amount_b`` of that from the cluster ``home_b``.
    """
    moves, clusters = _Moves(question), len(over_c)
    programme, scale = moves.programme, float(max(1, over_c.max(initial=0)))
    programme.row(question.units_b)
    moves.add_rooms()
    programme.add(moves.share_v, moves.columns, np.ones(len(moves.columns)))
    # What counts is no more than what leaves, and than what is above.
    first = programme.row(np.zeros(clusters))
    counted = len(moves.columns) + np.arange(clusters)
    programme.add(first + np.arange(clusters), counted, np.ones(clusters))
    leaves_v = -amount_b[moves.share_v] / scale
    programme.add(first + home_b[moves.share_v], moves.columns, leaves_v)
    cost = np.concatenate([np.zeros(len(moves.columns)), np.ones(clusters)])
    most = np.concatenate([moves.most_v, over_c / scale])
    best, solution = programme.solved(cost, most)
    units_bc = moves.spread(solution[: len(moves.columns)])
    return MoveBound(most=best * scale, units_bc=units_bc)


def most_emptied(
    question: MoveQuestion, home_b: IntArray, worth_c: FloatArray
) -> tuple[MoveBound, FloatArray]:
    """How much worth clusters could be emptied of all their shares, and how much of each would be;
    one that is emptied takes nothing. Those that are worth 0 stay.
    """
    moves, clusters = _Moves(question), len(worth_c)
    programme, shares = moves.programme, np.arange(len(home_b))
    # A share leaves by as much as its cluster is emptied.
    programme.row(np.zeros(len(home_b)))
    programme.add(moves.share_v, moves.columns, -np.ones(len(moves.columns)))
    emptied = len(moves.columns) + np.arange(clusters)
    programme.add(shares, emptied[home_b], question.units_b.astype(np.float64))
    first = moves.add_rooms()
    cell_n, resource_n = (question.free_cr > 0).nonzero()
    rows = first + cell_n * question.free_cr.shape[1] + resource_n
    programme.add(rows, emptied[cell_n], np.ones(len(rows)))
    cost = np.concatenate([np.zeros(len(moves.columns)), worth_c])
    most = np.concatenate([moves.most_v, (worth_c > 0).astype(np.float64)])
    # From where nothing moves the primal method takes a seventh of the time of the dual one.
    best, solution = programme.solved(cost, most, simplex_strategy=_PRIMAL)
    units_bc = moves.spread(solution[: len(moves.columns)])
    return MoveBound(most=best, units_bc=units_bc), solution[len(moves.columns) :]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitingQuestion:
    """Bindings (axis w) that wait for room for ``units_w``, of which each asks for ``request_wr``
    and counts for ``replicas_w``; ``reach_wc`` lets them in.
    """

    units_w: IntArray
    replicas_w: IntArray
    request_wr: FloatArray
    reach_wc: BoolArray


def most_placed(question: MoveQuestion, home_b: IntArray, waiting: WaitingQuestion) -> MoveBound:
    """How many replicas that wait could have room, if shares left clusters and all could be cut."""
    moves, resources = _Moves(question), question.free_cr.shape[1]
    programme = moves.programme
    programme.row(question.units_b)
    programme.add(moves.share_v, moves.columns, np.ones(len(moves.columns)))
    first = moves.add_rooms()
    scale_cr = moves.scale_cr
    # What leaves makes room.
    left_vr = question.request_br[moves.share_v] / scale_cr[home_b[moves.share_v]]
    home_rows = first + home_b[moves.share_v, None] * resources + np.arange(resources)
    programme.add(home_rows, np.broadcast_to(moves.columns[:, None], left_vr.shape), -left_vr)
    waiting_v, there_v = waiting.reach_wc.nonzero()
    columns = len(moves.columns) + np.arange(len(waiting_v))
    takes_vr = waiting.request_wr[waiting_v] / scale_cr[there_v]
    rows = first + there_v[:, None] * resources + np.arange(resources)
    programme.add(rows, np.broadcast_to(columns[:, None], takes_vr.shape), takes_vr)
    asks = programme.row(waiting.units_w)
    programme.add(asks + waiting_v, columns, np.ones(len(columns)))
    cost = np.concatenate([np.zeros(len(moves.columns)), waiting.replicas_w[waiting_v]])
    most = np.concatenate([moves.most_v, waiting.units_w[waiting_v]])
    best, solution = programme.solved(cost, most)
    return MoveBound(most=best, units_bc=moves.spread(solution[: len(moves.columns)]))


class _Moves:
    """The columns of a question: one for each pair of a share and a cluster with room for it."""

    def __init__(self, question: MoveQuestion) -> None:
        room_bc = np.minimum(question.room_bc, question.units_b[:, None])
        room_bc[question.needless_b] = 0
        self.programme = _Programme()
        self.share_v, self.cluster_v = room_bc.nonzero()
        self.most_v = room_bc[self.share_v, self.cluster_v].astype(np.float64)
        self.columns = np.arange(len(self.share_v))
        # In parts of what is free, so that bytes and cores are of one size.
        self.scale_cr = np.maximum(question.free_cr, 1)
        self._question = question

    def add_rooms(self, part: float = 1.0) -> int:
        """Rows for each resource of each cluster: what comes takes no more than a part of what is
        free, and by the bound no more than all of it. The first of them.
        """
        free_cr = self._question.free_cr
        resources = free_cr.shape[1]
        first = self.programme.row((free_cr > 0).ravel(), part)
        parts_vr = self._question.request_br[self.share_v] / self.scale_cr[self.cluster_v]
        rows_vr = first + self.cluster_v[:, None] * resources + np.arange(resources)
        columns_vr = np.broadcast_to(self.columns[:, None], parts_vr.shape)
        self.programme.add(rows_vr, columns_vr, parts_vr)
        return first

    def spread(self, units_v: FloatArray) -> FloatArray:
        units_bc = np.zeros(self._question.room_bc.shape)
        units_bc[self.share_v, self.cluster_v] = units_v
        return units_bc


@dataclass(slots=True)
class _Programme:
    """Rows of which each sums columns up to no more than a number."""

    _most: list[FloatArray] = field(default_factory=list)
    _told: list[FloatArray] = field(default_factory=list)
    _rows: list[npt.NDArray[Any]] = field(default_factory=list)
    _columns: list[npt.NDArray[Any]] = field(default_factory=list)
    _values: list[FloatArray] = field(default_factory=list)
    _count: int = 0

    def row(self, most_n: npt.NDArray[Any], part: float = 1.0) -> int:
        """More rows, of which the solver is to fill but a part; the position of the first."""
        first = self._count
        self._most.append(most_n.astype(np.float64))
        self._told.append(most_n * part)
        self._count += len(most_n)
        return first

    def add(
        self, rows: npt.NDArray[Any], columns: npt.NDArray[Any], values: npt.NDArray[Any]
    ) -> None:
        """In these rows so much of these columns; at most once each."""
        counts = values != 0
        self._rows.append(rows[counts])
        self._columns.append(columns[counts])
        self._values.append(values[counts].astype(np.float64))

    def solved(
        self, cost_v: npt.NDArray[Any], most_v: npt.NDArray[Any], **told: int
    ) -> tuple[float, FloatArray]:
        """What the columns, each from 0 to ``most_v``, come to of ``cost_v`` at most; and columns
        that come to about that. The solver is ``told`` more options.
        """
        if not len(cost_v):
            return 0.0, np.zeros(0)
        import highspy  # noqa: PLC0415 - takes long to load, and few programs ever make a plan

        rows, columns = np.concatenate(self._rows), np.concatenate(self._columns)
        order = np.lexsort((rows, columns))
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(cost_v), self._count
        model.sense_ = highspy.ObjSense.kMaximize
        model.col_cost_ = cost_v.astype(np.float64)
        model.col_lower_, model.col_upper_ = np.zeros(len(cost_v)), most_v.astype(np.float64)
        model.row_lower_ = np.full(self._count, -highspy.kHighsInf)
        model.row_upper_ = np.concatenate(self._told)
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        starts = np.searchsorted(columns[order], np.arange(len(cost_v) + 1))
        model.a_matrix_.start_ = starts.astype(np.int32)
        model.a_matrix_.index_ = rows[order].astype(np.int32)
        values = np.concatenate(self._values)
        model.a_matrix_.value_ = values[order]
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call] # its stubs leave that out
        options: dict[str, object] = {"output_flag": False, "threads": 1, "random_seed": _SEED}
        options |= told
        if len(cost_v) > _MOST_SIMPLEX_COLUMNS:
            options |= {"solver": "ipm", "run_crossover": "off", "presolve": "off"}
        for option, value in options.items():
            solver.setOptionValue(option, value)
        solver.passModel(model)
        solver.run()
        solution = solver.getSolution()
        # By weak duality any prices of the rows, none below 0, prove a bound, however exact the
        # solver was.
        price_n = np.abs(np.asarray(solution.row_dual))
        paid_v = np.bincount(columns, weights=values * price_n[rows], minlength=len(cost_v))
        bound = price_n @ np.concatenate(self._most) + most_v @ np.maximum(cost_v - paid_v, 0)
        return float(bound), np.asarray(solution.col_value)
