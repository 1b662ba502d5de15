"""A judgement as an extender's answers: who is kept, who is not and why, points, victims.

Pure. Must not speak HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from estimator.binpack.arrays import ReplicaRequest
from estimator.binpack.profile import ScoringProfile
from estimator.binpack.strategy import MAX_NODE_SCORE, ScoreArray, Strategy
from estimator.binpack.volcano import VolcanoBinpack
from estimator.nodes import Pod
from estimator.placing.judgement import Judgement
from federation.model.arrays import BoolArray, IntArray

MAX_POINTS: Final = 10

UNKNOWN_NODE: Final = "the agent does not know this node"
KEPT_ELSEWHERE: Final = "room is kept for it on another node"
SCARCE: Final = "nearly all that is free is promised to others, so that another node comes first"
# A pod counts on every node it is let on until it is seen: where claims leave room for fewer such
# pods than this, it is let on one node alone.
AMPLE_PODS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What becomes of the nodes that were asked about, each name in one of the three.

    ``kept_n`` are the rows of those that are kept; ``awaited`` will do once pods that were let on
    them turn out to be elsewhere.
    """

    kept_n: BoolArray
    kept: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    unresolvable: dict[str, str] = field(default_factory=dict)
    awaited: int = 0


def verdicts(judgement: Judgement, positions: Mapping[str, int], names: Sequence[str]) -> Verdicts:
    """Which of the named nodes the pod may have.

    Unresolvable is what no leaving pod can change; there preemption need not look.
    """
    row_m = np.array([positions.get(name, -1) for name in names], dtype=np.int64)
    offered_n = np.zeros(judgement.arrays.size, dtype=np.bool_)
    offered_n[row_m[row_m >= 0]] = True
    withheld_n, why_withheld = withheld(judgement, offered_n)
    reasons, nevers = judgement.reasons(), judgement.never_n.tolist()
    for row in withheld_n.nonzero()[0].tolist():
        reasons[row] = why_withheld
    answer = Verdicts(
        kept_n=offered_n & judgement.fits_n & ~withheld_n,
        awaited=int((judgement.awaited_n & offered_n).sum()),
    )
    for name, row in zip(names, row_m.tolist(), strict=True):
        if row < 0:
            answer.failed[name] = UNKNOWN_NODE
        elif not reasons[row]:
            answer.kept.append(name)
        elif nevers[row]:
            answer.unresolvable[name] = reasons[row]
        else:
            answer.failed[name] = reasons[row]
    return answer


def withheld(judgement: Judgement, offered_n: BoolArray) -> tuple[BoolArray, str]:
    """Offered nodes that the pod would fit and is not let on all the same, and why.

    A promise's pod goes to one node where its room is kept, so that it counts there alone. Others
    leave nodes alone where claims leave little room, as long as there is another node; if there is
    none they get one of these.
    """
    fits_n = judgement.fits_n & offered_n
    planned_n = fits_n & judgement.planned_n
    if planned_n.any():
        return _all_but_best(judgement, planned_n, fits_n), KEPT_ELSEWHERE
    scarce_n = fits_n & judgement.others_n & ~judgement.own_n & ~judgement.ample_n(AMPLE_PODS)
    if scarce_n.any() and (scarce_n == fits_n).all():
        return _all_but_best(judgement, scarce_n, fits_n), SCARCE
    return scarce_n, SCARCE


def _all_but_best(judgement: Judgement, among_n: BoolArray, all_n: BoolArray) -> BoolArray:
    """All of them without the one among some that scores highest."""
    score_n = judgement.scores().astype(np.float64)
    others_n = all_n.copy()
    others_n[int(np.argmax(np.where(among_n, score_n, -np.inf)))] = False
    return others_n


def points(
    judgement: Judgement, positions: Mapping[str, int], names: Iterable[str]
) -> dict[str, int]:
    """0 to 10 for every named node; a node unknown here gets 0.

    Where room was claimed for such a pod it gets 10, and no other node then more than 9.
    """
    points_n = ten_points(judgement.strategy, judgement.pod.request, judgement.scores())
    if judgement.own_n.any():
        points_n = np.where(judgement.own_n, MAX_POINTS, np.minimum(points_n, MAX_POINTS - 1))
    points = points_n.tolist()
    rows = ((name, positions.get(name)) for name in names)
    return {name: 0 if row is None else points[row] for name, row in rows}


def fits_without(
    judgement: Judgement, positions: Mapping[str, int], node: str, victims: Iterable[Pod]
) -> bool:
    """Whether the pod fits the node once the victims, as far as they are on it, have left."""
    row = positions.get(node)
    leaving = (victim for victim in victims if victim.node == node)
    return row is not None and judgement.fits_without(row, leaving)


def ten_points(strategy: Strategy, request: ReplicaRequest, score_n: ScoreArray) -> IntArray:
    """Any strategy's scores as 0 to 10; all 0 where the strategy cannot tell nodes apart.

    Linear from its lowest score to its highest, to the nearest whole point, halves up: a score s of
    0 to 100 becomes floor(s / 10 + 0.5). kube-scheduler multiplies points by 10 and by the
    extender's weight; it clamps nothing, so no score may leave the range here.
    """
    lowest, highest = _range(strategy, request)
    if lowest == highest:
        return np.zeros(len(score_n), dtype=np.int64)
    points_n = np.floor((score_n - lowest) * MAX_POINTS / (highest - lowest) + 0.5)
    return np.clip(points_n, 0, MAX_POINTS).astype(np.int64)


def _range(strategy: Strategy, request: ReplicaRequest) -> tuple[int, int]:
    """The lowest and the highest score there can be."""
    if isinstance(strategy, VolcanoBinpack):
        most = MAX_NODE_SCORE * strategy.weight
        return min(0, most), max(0, most)
    if isinstance(strategy, ScoringProfile):
        weights = (plugin.weight for plugin in strategy.plugins if plugin.has_a_say(request))
        return 0, MAX_NODE_SCORE * sum(weights)
    return 0, MAX_NODE_SCORE
