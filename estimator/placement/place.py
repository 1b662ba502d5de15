"""Chooses nodes for one cluster's shares of a decision, and claims their room.

Must not decide how many replicas the cluster gets: the control plane has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from estimator.binpack.arrays import NodeArrays, ReplicaRequest, insufficient
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.place import NodePlacements, PlacementRequest, place
from estimator.binpack.strategy import ResourceWeight, Strategy
from estimator.cluster.holds import Claim, Claims
from estimator.estimation.fit import feasible_n, without_slots
from estimator.snapshot import Snapshot
from federation.model.arrays import BoolArray, IntArray
from federation.model.node_plans import NodePlan, NodeShare, PlaceOrder, ShareOrder
from federation.model.resources import CPU, MAX_AMOUNT, MEMORY, PODS
from federation.model.shapes import ReservationKey
from federation.model.workload import NodeClaim, ReplicaRequirements

DEFAULT_STRATEGY: Final = MostAllocated(
    weights=(ResourceWeight(resource=CPU, weight=1), ResourceWeight(resource=MEMORY, weight=1))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seating:
    """Nodes for one share: the claims to make, and why some of it found none.

    ``strategy`` names whose scores chose them.
    """

    claims: tuple[Claim, ...]
    nodes: tuple[NodeShare, ...]
    unplaced: int
    why: str
    strategy: str


def place_shares(
    snapshot: Snapshot,
    claims: Claims,
    order: PlaceOrder,
    now: float,
    strategy: Strategy = DEFAULT_STRATEGY,
) -> NodePlan:
    """Place share after share by score on what pods and claims leave, and claim what was placed.

    What the binding claimed before is released first: this order replaces it.
    """
    claims.expire(now)
    claims.release(order.binding_key)
    seatings = seat(snapshot, list(claims.all()), order.shares, strategy)
    held = [claim for seating in seatings for claim in seating.claims]
    if held:
        claims.hold(order.binding_key, held, now, order.decision_id)
    return NodePlan(
        nodes=tuple(node for seating in seatings for node in seating.nodes),
        unplaced=sum(seating.unplaced for seating in seatings),
        message="; ".join(seating.why for seating in seatings if seating.why),
        strategy=strategy.name,
    )


def seat(
    snapshot: Snapshot,
    taken: Sequence[Claim],
    shares: Sequence[ShareOrder],
    strategy: Strategy,
    counted_n: BoolArray | None = None,
) -> list[Seating]:
    """Nodes for share after share, on what pods, ``taken`` and the shares before it leave.

    Among all nodes, or ``counted_n`` alone.
    """
    rows = {node.name: row for row, node in enumerate(snapshot.table.nodes)}
    seatings: list[Seating] = []
    taken = list(taken)
    for share in shares:
        arrays = arrays_beside(taken, snapshot, rows)
        request = ReplicaRequest.of(without_slots(share.requirements.request))
        feasible = feasible_n(snapshot.table, share.requirements.node_claim)
        if counted_n is not None:
            feasible &= counted_n
        demand = PlacementRequest(request=request, replicas=share.replicas)
        placement = place(arrays, demand, strategy, feasible)
        claims = _claims(snapshot, placement, request, share.requirements.node_claim)
        taken += claims
        missing, why = share.replicas - placement.placed, ""
        if missing:
            after = arrays_beside(taken, snapshot, rows)
            why = _why_unplaced(after, share, missing, request, feasible)
        score_n, scale = strategy.score(arrays, request), strategy.most(request)
        nodes = _node_shares(snapshot, share.component, placement, score_n, scale)
        seatings.append(
            Seating(
                claims=tuple(claims),
                nodes=tuple(nodes),
                unplaced=missing,
                why=why,
                strategy=strategy.name,
            )
        )
    return seatings


def beside(snapshot: Snapshot, claims: Sequence[Claim]) -> Snapshot:
    """The snapshot with claimed room counted as requested."""
    if not claims:
        return snapshot
    rows = {node.name: row for row, node in enumerate(snapshot.table.nodes)}
    return replace(snapshot, requested=arrays_beside(claims, snapshot, rows).requested)


def arrays_beside(
    claims: Sequence[Claim], snapshot: Snapshot, rows: Mapping[str, int]
) -> NodeArrays:
    """The snapshot's columns with claimed room counted as requested; ``rows`` is row by name."""
    # A node that is gone took the claim's room with it.
    seated = [claim for claim in claims if claim.node in rows]
    row_m = np.fromiter((rows[claim.node] for claim in seated), dtype=np.int64, count=len(seated))
    return NodeArrays(
        size=len(snapshot),
        allocatable=snapshot.table.allocatable,
        requested=_added(
            snapshot.requested, len(snapshot), row_m, [claim.taken for claim in seated]
        ),
        nonzero_requested=_added(
            snapshot.nonzero,
            len(snapshot),
            row_m,
            [claim.nonzero_taken for claim in seated],
        ),
    )


def fitting(
    snapshot: Snapshot,
    claims: Sequence[Claim],
    rows: Mapping[str, int],
    counted_n: BoolArray | None = None,
) -> list[int]:
    """Yield how many replicas of claim after claim pods and earlier claims leave room for.

    On all nodes, or on ``counted_n`` alone.
    """
    crowded = set(_crowded(snapshot, claims, rows, counted_n).nonzero()[0].tolist())
    remaining: dict[tuple[int, str], int] = {}
    fits = []
    for claim in claims:
        row = rows.get(claim.node)
        if row is None or (row in crowded and counted_n is not None and not counted_n[row]):
            fits.append(0)
        elif row not in crowded:
            fits.append(claim.replicas)
        else:
            fits.append(_take(snapshot, row, claim, remaining))
    return fits


def _crowded(
    snapshot: Snapshot,
    claims: Sequence[Claim],
    rows: Mapping[str, int],
    counted_n: BoolArray | None,
) -> BoolArray:
    """Nodes that do not hold all of their claims, or are not counted: few."""
    arrays = arrays_beside(claims, snapshot, rows)
    crowded_n = np.zeros(len(snapshot), np.bool_) if counted_n is None else ~counted_n
    for name, requested_n in arrays.requested.items():
        crowded_n |= requested_n > arrays.allocatable_n(name)
    return crowded_n


def _take(snapshot: Snapshot, row: int, claim: Claim, remaining: dict[tuple[int, str], int]) -> int:
    """Return how many of the claim's replicas the ``remaining`` room of the node takes."""
    needed = {**claim.request, PODS: 1}
    for name in needed:
        if (row, name) not in remaining:
            free = int(snapshot.allocatable_n(name)[row]) - int(snapshot.requested_n(name)[row])
            remaining[row, name] = free
    replicas = min(remaining[row, name] // amount for name, amount in needed.items())
    replicas = max(0, min(replicas, claim.replicas))
    for name, amount in needed.items():
        remaining[row, name] -= replicas * amount
    return replicas


_Columns = TypeVar("_Columns", NodeArrays, Snapshot)


def beside_assumed(columns: _Columns, assumed: Mapping[str, IntArray]) -> _Columns:
    """The columns with so much more requested."""
    if not assumed:
        return columns
    requested = dict(columns.requested)
    for name, amount_n in assumed.items():
        # Broken pods request as much as an integer holds.
        requested[name] = np.minimum(columns.requested_n(name), MAX_AMOUNT - amount_n) + amount_n
    return replace(columns, requested=requested)


def _added(
    columns: Mapping[str, IntArray],
    size: int,
    row_m: IntArray,
    amounts_m: Sequence[Mapping[str, int]],
) -> dict[str, IntArray]:
    """The columns with amounts added at rows, of which one may occur several times."""
    added = dict(columns)
    for name in {name for amounts in amounts_m for name in amounts}:
        column = columns[name].copy() if name in columns else np.zeros(size, dtype=np.int64)
        np.add.at(column, row_m, [amounts.get(name, 0) for amounts in amounts_m])
        added[name] = column
    return added


def _claims(
    snapshot: Snapshot,
    placement: NodePlacements,
    request: ReplicaRequest,
    node_claim: NodeClaim | None,
) -> list[Claim]:
    amounts = without_slots(request.amounts)
    return [
        Claim(
            node=snapshot.table.nodes[entry.node].name,
            replicas=entry.replicas,
            request=amounts,
            nonzero=request.nonzero_placed,
            node_claim=node_claim,
        )
        for entry in placement.nodes()
    ]


def _node_shares(
    snapshot: Snapshot, component: str, placement: NodePlacements, score_n: np.ndarray, scale: float
) -> list[NodeShare]:
    return [
        NodeShare(
            node=snapshot.table.nodes[entry.node].name,
            component=component,
            replicas=entry.replicas,
            # Sums of floats may come to a little more.
            score=max(-scale, min(float(score_n[entry.node]), scale)),
            scale=scale,
        )
        for entry in placement.nodes()
    ]


def _why_unplaced(
    arrays: NodeArrays,
    share: ShareOrder,
    missing: int,
    request: ReplicaRequest,
    feasible: BoolArray,
) -> str:
    component = f" of {share.component}" if share.component else ""
    summary = f"{missing} of {share.replicas} replicas{component} found no node"
    if not arrays.size:
        return f"{summary}: the cluster has no nodes"
    reasons = []
    ruled_out = arrays.size - int(feasible.sum())
    if ruled_out:
        reasons.append(f"{ruled_out} ruled out by selector, affinity or taints")
    for name, short_n in insufficient(arrays, request).items():
        short = int((short_n & feasible).sum())
        if short:
            reasons.append(f"{short} short of {name}")
    return f"{summary} among {arrays.size}: {', '.join(reasons)}"


# Each costs about as much as an order of its own: more would hold up the loop.
MAX_MOVED: Final = 200
# Scores that fill nodes use up one resource of a node and waste what it has left of the others.
# Where hardly any room is left, all find nodes only where these are used up together.
BALANCED: Final = BalancedAllocation(
    weights=(ResourceWeight(resource=CPU, weight=1), ResourceWeight(resource=MEMORY, weight=1))
)


def seated_anew(
    held: Mapping[ReservationKey, Sequence[Claim]],
    share_orders: Mapping[ReservationKey, ShareOrder],
    snapshot: Snapshot,
    strategy: Strategy,
    seated: Callable[[Sequence[ShareOrder], Strategy], Sequence[Seating]],
) -> dict[ReservationKey, Seating]:
    """Return nodes for all that is ordered and all that is ``held``; nothing for half of it.

    The largest come first, else those that the fewest nodes suit. Nodes are chosen by the
    strategy's scores, else by how they even out what nodes have left, then also in the order of
    the claims. Nothing is returned without a node for every replica, or if too many would move.
    """
    if not held or len(held) > MAX_MOVED:
        return {}
    shares = {key: share_like(key, claims[-1], replicas_of(claims)) for key, claims in held.items()}
    shares.update(share_orders)
    largest = largest_first(shares, snapshot)
    suiting = {
        key: _suiting(share.requirements.node_claim, snapshot) for key, share in shares.items()
    }
    orders = [largest]
    if (fewest := sorted(largest, key=suiting.__getitem__)) != largest:
        orders.append(fewest)
    # In the order of their claims small ones are not all left for what large ones leave.
    tried = [(strategy, order) for order in orders]
    tried += [(BALANCED, order) for order in ([*shares], *orders)]
    for scores, order in tried:
        seatings = seated([shares[key] for key in order], scores)
        if not any(seating.unplaced for seating in seatings):
            return dict(zip(order, seatings, strict=True))
    return {}


def _suiting(claim: NodeClaim | None, snapshot: Snapshot) -> int:
    """How many nodes selector, affinity and taints leave."""
    return int(feasible_n(snapshot.table, claim).sum())


def largest_first(keys: Iterable[ReservationKey], snapshot: Snapshot) -> list[ReservationKey]:
    """By the largest part of anything in the cluster that one replica takes."""
    totals = {name: int(column.sum()) for name, column in snapshot.table.allocatable.items()}

    def size(key: ReservationKey) -> float:
        return max((amount / max(totals.get(name, 0), 1) for name, amount in key.shape), default=0)

    return sorted(keys, key=size, reverse=True)


def share_like(key: ReservationKey, claim: Claim, replicas: int) -> ShareOrder:
    """Replicas that ask for what those of a claim do."""
    requirements = ReplicaRequirements(request=claim.request, node_claim=claim.node_claim)
    return ShareOrder(component=key.component, replicas=replicas, requirements=requirements)


def replicas_of(claims: Iterable[Claim]) -> int:
    return sum(claim.replicas for claim in claims)
