"""Where kube-scheduler puts pods: its stock scores over the nodes of a cluster, shape after shape.

Pure, whole-array; closed form, never a loop over pods. Must not promise anything: ``second_looks``
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.pools.bounds import fit_in_k, per_replica
from federation.model.pools.values import SCORED, Cells
from federation.model.resources import CPU, MEMORY

# What pods that ask for none are scored as if they asked for.
_UNASKED: Final = {CPU: 100, MEMORY: 200 * 1024 * 1024}
# More than any sum of scores.
_SCORES: Final = 256
_NEVER: Final = -1
# Nodes times the pods that one of them takes at most.
_MOST_STEPS: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RehearsedNodes:
    """Nodes as rehearsals see them (axis k): ``count_k`` alike, in the pool at ``pool_k``.

    ``free_rk`` is what each has of ``resources``, ``allocatable_sk`` all it has of what is SCORED.
    """

    resources: tuple[str, ...]
    pool_k: npt.NDArray[np.int32]
    count_k: IntArray
    free_rk: IntArray
    allocatable_sk: IntArray

    @classmethod
    def of(cls, cells: Cells, allocatable_sk: IntArray) -> RehearsedNodes:
        """As reported: nodes of a cell may have more than that."""
        return cls(
            resources=cells.resources,
            pool_k=cells.pool_k,
            count_k=cells.count_k,
            free_rk=cells.min_rk,
            allocatable_sk=allocatable_sk,
        )


class Part(NamedTuple):
    """So many pods of a shape; ``suiting_p`` are the cluster's pools that they may be in."""

    request: Mapping[str, int]
    suiting_p: BoolArray
    replicas: int


class Taste(NamedTuple):
    """What schedulers differ in.

    ``by_change``: nodes score by how much more balanced the pod makes them, and not by how balanced
    they are then. ``turn`` says which of equal nodes come first, where anything may.
    """

    by_change: bool
    turn: int = 0


def room_for(stage: RehearsedNodes, part: Part) -> int:
    """How many pods of the shape all nodes take."""
    return int((_fits_k(stage, part) * stage.count_k).sum())


def placed(stage: RehearsedNodes, part: Part, taste: Taste) -> RehearsedNodes | None:
    """The stage once the pods have nodes; None where some find none, or nodes are too many for so
    many pods each.

    One after the other they go where the score is highest. A node's pods come in the order of the
    least score on the way to each: so those with the highest such scores of all are taken.
    """
    if not part.replicas:
        return stage
    most_k = np.minimum(_fits_k(stage, part), part.replicas)
    if int((most_k * stage.count_k).sum()) < part.replicas:
        return None
    depth = int(most_k.max())
    if depth * len(most_k) > _MOST_STEPS:
        return None
    score_jk = _scores(stage, part, depth, taste)
    score_jk[np.arange(depth)[:, np.newaxis] >= most_k] = _NEVER
    np.minimum.accumulate(score_jk, axis=0, out=score_jk)
    is_there_jk = score_jk > _NEVER
    counts = np.bincount(
        score_jk[is_there_jk],
        weights=np.broadcast_to(stage.count_k, score_jk.shape)[is_there_jk],
        minlength=_SCORES,
    )
    enough = np.cumsum(counts[::-1]) >= part.replicas
    threshold = len(counts) - 1 - int(enough.argmax())
    taken_k = (score_jk > threshold).sum(axis=0)
    equal_k = (score_jk == threshold).sum(axis=0)
    rest = part.replicas - int((taken_k * stage.count_k).sum())
    return _dealt(stage, part, taken_k, equal_k, rest, taste)


def _fits_k(stage: RehearsedNodes, part: Part) -> IntArray:
    """How many more pods of the shape each node takes."""
    found_k = fit_in_k(stage.resources, stage.free_rk, per_replica(part.request))
    suits_k: IntArray = found_k * part.suiting_p[stage.pool_k]
    return suits_k


def _dealt(
    stage: RehearsedNodes, part: Part, taken_k: IntArray, equal_k: IntArray, rest: int, taste: Taste
) -> RehearsedNodes:
    """Each node takes its pods, and nodes one after the other those of equal score, until ``rest``
    of them are dealt: the last cell is divided.
    """
    order = np.arange(len(taken_k))[:: -1 if taste.turn else 1]
    room_k = (equal_k * stage.count_k)[order]
    before_k = np.cumsum(room_k) - room_k
    share_k = np.zeros_like(room_k)
    share_k[order] = np.clip(rest - before_k, 0, room_k)
    whole_k = share_k == equal_k * stage.count_k
    taken_k = taken_k + np.where(whole_k, equal_k, 0)
    (divided,) = np.nonzero(~whole_k & (share_k > 0))
    count_k, pieces = stage.count_k, [np.arange(len(taken_k))]
    for k in divided.tolist():
        full, left = divmod(int(share_k[k]), int(equal_k[k]))
        more = [(full, int(equal_k[k])), (1 if left else 0, left)]
        more = [(nodes, pods) for nodes, pods in more if nodes]
        count_k = np.append(count_k, [nodes for nodes, _ in more])
        count_k[k] -= sum(nodes for nodes, _ in more)
        taken_k = np.append(taken_k, [taken_k[k] + pods for _, pods in more])
        pieces.append(np.full(len(more), k))
    origin_k = np.concatenate(pieces)
    (there,) = np.nonzero(count_k)
    origin_k, taken_k = origin_k[there], taken_k[there]
    amounts = per_replica(part.request)
    amount_r1 = np.array([[amounts.get(name, 0)] for name in stage.resources], dtype=np.int64)
    return RehearsedNodes(
        resources=stage.resources,
        pool_k=stage.pool_k[origin_k],
        count_k=count_k[there],
        free_rk=stage.free_rk[:, origin_k] - amount_r1 * taken_k,
        allocatable_sk=stage.allocatable_sk[:, origin_k],
    )


def _scores(stage: RehearsedNodes, part: Part, depth: int, taste: Taste) -> IntArray:
    """What each node scores for its first pod of the shape, its second, and so on (axis j)."""
    total_sk = np.maximum(stage.allocatable_sk, 1).astype(np.float64)
    rows = [stage.resources.index(name) for name in SCORED]
    # What agents report need not go together.
    used_sk = np.clip(total_sk - stage.free_rk[rows], 0.0, total_sk)
    pods_j1 = np.arange(depth + 1, dtype=np.float64)[:, np.newaxis]
    fit_jk = np.zeros((depth, len(stage.count_k)))
    shares: list[FloatArray] = []
    for name, total_k, used_k in zip(SCORED, total_sk, used_sk, strict=True):
        asked = part.request.get(name, 0)
        scored = asked or _UNASKED[name]
        left_jk = np.maximum(total_k - used_k - pods_j1[1:] * scored, 0.0)
        fit_jk += np.floor(left_jk * 100 / total_k)
        shares.append(np.minimum((used_k + pods_j1 * asked) / total_k, 1.0))
    even_jk = np.floor((1 - np.abs(shares[0] - shares[1]) / 2) * 100)
    balance_jk = even_jk[1:]
    if taste.by_change:
        balance_jk = 50 + np.trunc((50 + even_jk[1:] - even_jk[:-1]) / 2)
    score_jk: IntArray = (np.floor(fit_jk / 2) + balance_jk).astype(np.int64)
    return score_jk
