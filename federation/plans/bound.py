"""How much plans could do at best, by linear programmes.

Pure: one thread and a fixed seed, so that equal problems have equal answers. Must not place
anything: whole replicas, nodes and spreading, which it ignores, only make the true best smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, FloatArray, IntArray

_SEED: Final = 1
# The primal simplex method of HiGHS.
_PRIMAL: Final = 4
# Beyond it the interior point method takes seconds, and the simplex method minutes.
_MAX_SIMPLEX_COLUMNS: Final = 100_000
# The error that the solver may make, as a part and in replicas.
_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoveProblem:
    """Shares of bindings (axis b) that may leave, and the clusters (axis c) that could take them.

    Share b has ``units_b`` units, of which one requests ``request_br`` and stands for
    ``replicas_b`` replicas. Cluster c takes ``available_bc`` of them if nothing else moves, and
    has ``free_cr`` for all shares. A share at ``needless_b`` needs no capacity elsewhere.
    """

    units_b: IntArray
    replicas_b: IntArray
    needless_b: BoolArray
    request_br: FloatArray
    available_bc: IntArray
    free_cr: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoveBound:
    """No plan does more than ``maximum``; the relaxed optimum moves ``units_bc``."""

    maximum: float
    units_bc: FloatArray

    @property
    def whole(self) -> int:
        """The bound of plans that move whole units."""
        return int(np.floor(self.maximum * (1 + _TOLERANCE) + _TOLERANCE))


def bound_moves(problem: MoveProblem, part: float = 1.0) -> MoveBound:
    """Bound how many replicas could move, if they could be cut.

    The relaxed optimum takes no more than this ``part`` of free capacity; the bound is of all.
    """
    needless = problem.units_b[problem.needless_b] @ problem.replicas_b[problem.needless_b]
    moves = _Moves(problem)
    moves.limit(part)
    cost_v = problem.replicas_b[moves.share_v].astype(np.float64)
    maximum, units_v = moves.programme.solve(cost_v, moves.max_v)
    return MoveBound(maximum=int(needless) + maximum, units_bc=moves.by_share(units_v))


def bound_levelling(
    problem: MoveProblem, home_b: IntArray, amount_b: IntArray, over_c: FloatArray
) -> MoveBound:
    """Bound how much of ``over_c``, the excess of clusters over their level, could leave them.

    A unit of share b takes ``amount_b`` of that from the cluster ``home_b``.
    """
    moves, clusters = _Moves(problem), len(over_c)
    programme, scale = moves.programme, float(max(1, over_c.max(initial=0)))
    moves.limit()
    # The amount that counts is no more than what leaves, and no more than the excess.
    first = programme.add_rows(np.zeros(clusters))
    counted = len(moves.columns) + np.arange(clusters)
    programme.add(first + np.arange(clusters), counted, np.ones(clusters))
    leaves_v = -amount_b[moves.share_v] / scale
    programme.add(first + home_b[moves.share_v], moves.columns, leaves_v)
    cost_v = np.concatenate([np.zeros(len(moves.columns)), np.ones(clusters)])
    max_v = np.concatenate([moves.max_v, over_c / scale])
    maximum, solution_v = programme.solve(cost_v, max_v)
    return MoveBound(maximum=maximum * scale, units_bc=moves.by_share(solution_v))


def bound_emptying(
    problem: MoveProblem, home_b: IntArray, worth_c: FloatArray
) -> tuple[MoveBound, FloatArray]:
    """Bound the worth of the clusters that could be emptied, and return the part of each that is.

    A cluster that is emptied takes nothing. Clusters that are worth 0 stay.
    """
    moves, clusters = _Moves(problem), len(worth_c)
    programme, shares = moves.programme, np.arange(len(home_b))
    # A share leaves by as much as its cluster is emptied.
    programme.add_rows(np.zeros(len(home_b)))
    programme.add(moves.share_v, moves.columns, -np.ones(len(moves.columns)))
    emptied = len(moves.columns) + np.arange(clusters)
    programme.add(shares, emptied[home_b], problem.units_b.astype(np.float64))
    first = moves.add_capacities()
    cell_n, resource_n = (problem.free_cr > 0).nonzero()
    rows = first + cell_n * problem.free_cr.shape[1] + resource_n
    programme.add(rows, emptied[cell_n], np.ones(len(rows)))
    cost_v = np.concatenate([np.zeros(len(moves.columns)), worth_c])
    max_v = np.concatenate([moves.max_v, (worth_c > 0).astype(np.float64)])
    # The primal method starts where nothing moves and takes a seventh of the time of the dual one.
    maximum, solution_v = programme.solve(cost_v, max_v, simplex_strategy=_PRIMAL)
    bound = MoveBound(maximum=maximum, units_bc=moves.by_share(solution_v))
    return bound, solution_v[len(moves.columns) :]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaitingProblem:
    """Bindings (axis w) that wait for capacity for ``units_w``.

    One unit requests ``request_wr`` and stands for ``replicas_w`` replicas. The clusters at
    ``eligible_wc`` let the binding in.
    """

    units_w: IntArray
    replicas_w: IntArray
    request_wr: FloatArray
    eligible_wc: BoolArray


def bound_placing(problem: MoveProblem, home_b: IntArray, waiting: WaitingProblem) -> MoveBound:
    """Bound how many waiting replicas could be placed, if shares left and all could be cut."""
    moves, resources = _Moves(problem), problem.free_cr.shape[1]
    programme = moves.programme
    first = moves.limit()
    scale_cr = moves.scale_cr
    # A share that leaves gives its capacity back.
    freed_vr = problem.request_br[moves.share_v] / scale_cr[home_b[moves.share_v]]
    home_rows = first + home_b[moves.share_v, None] * resources + np.arange(resources)
    programme.add(home_rows, np.broadcast_to(moves.columns[:, None], freed_vr.shape), -freed_vr)
    waiting_v, cluster_v = waiting.eligible_wc.nonzero()
    columns = len(moves.columns) + np.arange(len(waiting_v))
    takes_vr = waiting.request_wr[waiting_v] / scale_cr[cluster_v]
    rows = first + cluster_v[:, None] * resources + np.arange(resources)
    programme.add(rows, np.broadcast_to(columns[:, None], takes_vr.shape), takes_vr)
    first_waiting = programme.add_rows(waiting.units_w)
    programme.add(first_waiting + waiting_v, columns, np.ones(len(columns)))
    cost_v = np.concatenate([np.zeros(len(moves.columns)), waiting.replicas_w[waiting_v]])
    max_v = np.concatenate([moves.max_v, waiting.units_w[waiting_v]])
    maximum, solution_v = programme.solve(cost_v, max_v)
    return MoveBound(maximum=maximum, units_bc=moves.by_share(solution_v))


class _Moves:
    """The columns of a problem: one for each pair of a share and a cluster that could take it."""

    def __init__(self, problem: MoveProblem) -> None:
        available_bc = np.minimum(problem.available_bc, problem.units_b[:, None])
        available_bc[problem.needless_b] = 0
        self.programme = _Programme()
        self.share_v, self.cluster_v = available_bc.nonzero()
        self.max_v = available_bc[self.share_v, self.cluster_v].astype(np.float64)
        self.columns = np.arange(len(self.share_v))
        # Amounts are parts of what is free, so that bytes and cores have the same size.
        self.scale_cr = np.maximum(problem.free_cr, 1)
        self._problem = problem

    def limit(self, part: float = 1.0) -> int:
        """Limit moves by the units of shares and the capacity of clusters.

        Return the first row of the capacities.
        """
        self.programme.add_rows(self._problem.units_b)
        self.programme.add(self.share_v, self.columns, np.ones(len(self.columns)))
        return self.add_capacities(part)

    def add_capacities(self, part: float = 1.0) -> int:
        """Add a row for each resource of each cluster, and return the first of them.

        The solver fills this part of what is free; the bound is of all that is free.
        """
        free_cr = self._problem.free_cr
        resources = free_cr.shape[1]
        first = self.programme.add_rows((free_cr > 0).ravel(), part)
        parts_vr = self._problem.request_br[self.share_v] / self.scale_cr[self.cluster_v]
        rows_vr = first + self.cluster_v[:, None] * resources + np.arange(resources)
        columns_vr = np.broadcast_to(self.columns[:, None], parts_vr.shape)
        self.programme.add(rows_vr, columns_vr, parts_vr)
        return first

    def by_share(self, solution_v: FloatArray) -> FloatArray:
        """Return the units that move, by share and cluster; further columns are ignored."""
        units_bc = np.zeros(self._problem.available_bc.shape)
        units_bc[self.share_v, self.cluster_v] = solution_v[: len(self.columns)]
        return units_bc


@dataclass(slots=True)
class _Programme:
    """A linear programme: each row limits a sum of columns from above."""

    _limits: list[FloatArray] = field(default_factory=list)
    _solver_limits: list[FloatArray] = field(default_factory=list)
    _rows: list[npt.NDArray[Any]] = field(default_factory=list)
    _columns: list[npt.NDArray[Any]] = field(default_factory=list)
    _values: list[FloatArray] = field(default_factory=list)
    _count: int = 0

    def add_rows(self, limit_n: npt.NDArray[Any], part: float = 1.0) -> int:
        """Add rows, of whose limits the solver uses only a part; return the first position."""
        first = self._count
        self._limits.append(limit_n.astype(np.float64))
        self._solver_limits.append(limit_n * part)
        self._count += len(limit_n)
        return first

    def add(
        self, rows: npt.NDArray[Any], columns: npt.NDArray[Any], values: npt.NDArray[Any]
    ) -> None:
        """Set the coefficients of columns in rows; a pair is set at most once."""
        counts = values != 0
        self._rows.append(rows[counts])
        self._columns.append(columns[counts])
        self._values.append(values[counts].astype(np.float64))

    def solve(
        self, cost_v: npt.NDArray[Any], max_v: npt.NDArray[Any], **options: object
    ) -> tuple[float, FloatArray]:
        """Bound the sum of ``cost_v`` over columns from 0 to ``max_v``; return columns near it.

        ``options`` are further options of the solver.
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
        model.col_lower_, model.col_upper_ = np.zeros(len(cost_v)), max_v.astype(np.float64)
        model.row_lower_ = np.full(self._count, -highspy.kHighsInf)
        model.row_upper_ = np.concatenate(self._solver_limits)
        model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        starts = np.searchsorted(columns[order], np.arange(len(cost_v) + 1))
        model.a_matrix_.start_ = starts.astype(np.int32)
        model.a_matrix_.index_ = rows[order].astype(np.int32)
        values = np.concatenate(self._values)
        model.a_matrix_.value_ = values[order]
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call] # its stubs leave that out
        options |= {"output_flag": False, "threads": 1, "random_seed": _SEED}
        if len(cost_v) > _MAX_SIMPLEX_COLUMNS:
            options |= {"solver": "ipm", "run_crossover": "off", "presolve": "off"}
        for option, value in options.items():
            solver.setOptionValue(option, value)
        solver.passModel(model)
        solver.run()
        solution = solver.getSolution()
        # By weak duality any prices of the rows that are not below 0 prove a bound, however exact
        # the solver was.
        price_n = np.abs(np.asarray(solution.row_dual))
        paid_v = np.bincount(columns, weights=values * price_n[rows], minlength=len(cost_v))
        bound = price_n @ np.concatenate(self._limits) + max_v @ np.maximum(cost_v - paid_v, 0)
        return float(bound), np.asarray(solution.col_value)
