"""One pod against the cluster as it is: which nodes it may have, how good they are, and why not.

Room that was promised to other bindings counts as taken, and so does what assumed pods may take;
room promised to pods like this one is open to it. Pure, whole-array. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from estimator.binpack.arrays import NodeArrays, insufficient, room_n, unresolvable
from estimator.binpack.profile import ScoringProfile
from estimator.binpack.strategy import ScoreArray, Strategy
from estimator.cluster.holds import Claim
from estimator.estimation.fit import feasible_n
from estimator.nodes import Pod
from estimator.placement.incoming import IncomingPod
from estimator.placement.place import arrays_beside, beside_assumed
from estimator.snapshot import Snapshot
from federation.model.arrays import BoolArray, IntArray
from federation.model.resources import PODS
from federation.model.shapes import ReservationKey

RULED_OUT: Final = "ruled out by selector, affinity or taints"
# What alone keeps a pod from a node that else had room: others' claims, or assumed pods.
_CLAIMS: Final = 1
_ASSUMED: Final = 2
_KEPT_FROM: Final = ("", "the rest is promised to others", "others were let on it just now")
# As many as 64 bits hold beside the first three; a pod with more is told of these.
_FIRST_NAMED: Final = 3
_NAMED_RESOURCES: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The room on nodes that is taken besides pods: claims for a pod, others', and assumed pods.

    ``promise`` is the one that the pod stands for; ``assumed`` what pods on their way may take, by
    resource, beyond the claims that they come for.
    """

    own: Sequence[Claim]
    others: Sequence[Claim]
    promise: ReservationKey | None = None
    assumed: Mapping[str, IntArray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """A pod and the nodes beside others' claims, which ``arrays`` count as requested.

    ``own_n`` marks nodes with room claimed for such pods, ``planned_n`` those where a plan keeps it
    for a promise's pods, ``others_n`` nodes with room claimed for others. ``fits_n`` are those that
    the pod may have now, ``never_n`` those that no leaving pod could open to it. ``short`` holds,
    per resource, the nodes with too little of it free in ``filled``, which counts assumed pods as
    well; ``kept_from_n`` says whose fault it is alone. ``promise`` is the one the pod stands for.
    """

    pod: IncomingPod
    arrays: NodeArrays
    filled: NodeArrays
    strategy: Strategy
    feasible_n: BoolArray
    own_n: BoolArray
    planned_n: BoolArray
    others_n: BoolArray
    short: Mapping[str, BoolArray]
    fits_n: BoolArray
    never_n: BoolArray
    kept_from_n: IntArray
    promise: ReservationKey | None

    @classmethod
    def of(
        cls,
        pod: IncomingPod,
        snapshot: Snapshot,
        positions: Mapping[str, int],
        claimed: Claimed,
        strategy: Strategy,
    ) -> Judgement:
        """``positions`` are the nodes' rows by name."""
        snapshot = snapshot.seen_by(pod.uid, pod.priority)
        arrays = arrays_beside(claimed.others, snapshot, positions)
        filled = beside_assumed(arrays, claimed.assumed)
        feasible = feasible_n(snapshot.table, pod.node_claim)

        def short_of(nodes: NodeArrays) -> dict[str, BoolArray]:
            return _filtered(strategy, insufficient(nodes, pod.request))

        short = short_of(filled)
        never = _filtered(strategy, unresolvable(arrays, pod.request))
        without_claims = short_of(arrays_beside((), snapshot, positions))
        short_by = [
            _any(shortage, feasible) for shortage in (without_claims, short_of(arrays), short)
        ]
        planned = [claim for claim in claimed.own if claim.promise is not None]
        size = len(snapshot)
        return cls(
            pod=pod,
            arrays=arrays,
            filled=filled,
            strategy=strategy,
            feasible_n=feasible,
            own_n=_marked(claimed.own, positions, size),
            planned_n=_marked(planned, positions, size),
            others_n=_marked(claimed.others, positions, size),
            short=short,
            fits_n=feasible & ~short_by[2],
            never_n=~feasible | _any(never, feasible),
            kept_from_n=np.where(
                short_by[0], 0, np.where(short_by[1], _CLAIMS, short_by[2] * _ASSUMED)
            ),
            promise=claimed.promise,
        )

    @property
    def awaited_n(self) -> BoolArray:
        """Nodes that the pod may have unless assumed pods come there."""
        awaited_n: BoolArray = self.feasible_n & (self.kept_from_n == _ASSUMED)
        return awaited_n

    def ample_n(self, pods: int) -> BoolArray:
        """Nodes that have room for so many such pods."""
        amounts = {
            name: amount
            for name, amount in self.pod.request.amounts.items()
            if not _overlooks(self.strategy, name)
        }
        ample_n: BoolArray = (
            room_n(self.filled, replace(self.pod.request, amounts=amounts), pods) >= pods
        )
        return ample_n & self.feasible_n

    def scores(self) -> ScoreArray:
        """Every node's score, whether or not it fits."""
        return self.strategy.score(self.arrays, self.pod.request)

    def best_row(self) -> int | None:
        """The node for the pod: where room was promised to it, else where it scores highest.

        Equals go to the first node by name. None when the pod fits nowhere.
        """
        promised_n = self.fits_n & self.own_n
        open_n = promised_n if promised_n.any() else self.fits_n
        if not open_n.any():
            return None
        score_n = self.scores().astype(np.float64)
        return int(np.argmax(np.where(open_n, score_n, -np.inf)))

    def reasons(self) -> list[str]:
        """Return why the pod is kept from every node; empty where nothing does."""
        named = list(self.short)[:_NAMED_RESOURCES]
        code_n = (~self.feasible_n).astype(np.int64)
        code_n |= self.kept_from_n << 1
        for bit, name in enumerate(named, start=_FIRST_NAMED):
            code_n |= self.short[name].astype(np.int64) << bit
        codes = code_n.tolist()
        # Thousands of nodes fail for few different reasons.
        texts = {code: _reason(code, named) for code in set(codes)}
        return [texts[code] for code in codes]

    def why_nowhere(self) -> str:
        """Return the causes that keep the pod from all nodes, counted."""
        reasons = []
        ruled_out = int((~self.feasible_n).sum())
        if ruled_out:
            reasons.append(f"{ruled_out} {RULED_OUT}")
        for name, short_n in self.short.items():
            short = int((short_n & self.feasible_n).sum())
            if short:
                reasons.append(f"{short} short of {name}")
        summary = f"{int(self.fits_n.sum())} of {self.arrays.size} nodes fit"
        return f"{summary}: {', '.join(reasons)}" if reasons else summary

    def fits_without(self, row: int, leaving: Iterable[Pod]) -> bool:
        """Whether the pod fits the node once these have left it."""
        if not self.feasible_n[row]:
            return False
        gone = list(leaving)
        return all(
            amount <= self._free(name, row) + _freed(name, gone)
            for name, amount in self.pod.request.amounts.items()
            if amount > 0 and not _overlooks(self.strategy, name)
        )

    def _free(self, resource: str, row: int) -> int:
        allocatable_n = self.filled.allocatable_n(resource)
        return int(allocatable_n[row] - self.filled.requested_n(resource)[row])


class Positions:
    """Rows of nodes by name, made anew only when a node has changed."""

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._rows: dict[str, int] = {}

    def of(self, snapshot: Snapshot) -> Mapping[str, int]:
        if self._snapshot is None or self._snapshot.table is not snapshot.table:
            self._rows = {node.name: row for row, node in enumerate(snapshot.table.nodes)}
            self._snapshot = snapshot
        return self._rows


def _reason(code: int, named: Sequence[str]) -> str:
    reasons = [RULED_OUT] if code & 1 else []
    lacking = [name for bit, name in enumerate(named, start=_FIRST_NAMED) if code >> bit & 1]
    if lacking:
        reasons.append(f"short of {', '.join(lacking)}")
    if lacking and code >> 1 & 3:
        reasons.append(_KEPT_FROM[code >> 1 & 3])
    return "; ".join(reasons)


def _marked(claims: Iterable[Claim], positions: Mapping[str, int], size: int) -> BoolArray:
    marked_n = np.zeros(size, dtype=np.bool_)
    marked_n[[positions[claim.node] for claim in claims if claim.node in positions]] = True
    return marked_n


def _any(short: Mapping[str, BoolArray], feasible: BoolArray) -> BoolArray:
    """The nodes that are short of anything."""
    if not short:
        return np.zeros_like(feasible)
    any_n: BoolArray = np.logical_or.reduce(list(short.values()))
    return any_n


def _freed(resource: str, gone: Sequence[Pod]) -> int:
    if resource == PODS:
        return len(gone)
    return sum(pod.request.get(resource, 0) for pod in gone)


def _filtered(strategy: Strategy, short: Mapping[str, BoolArray]) -> dict[str, BoolArray]:
    return {name: short_n for name, short_n in short.items() if not _overlooks(strategy, name)}


def _overlooks(strategy: Strategy, resource: str) -> bool:
    """Whether the profile's filter takes no notice of a shortage."""
    return isinstance(strategy, ScoringProfile) and strategy.ignores(resource)
