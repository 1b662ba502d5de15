"""Claims that move for one another: what finds no node beside them may find one when they do.

Must not decide whose claims may move, nor change any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.strategy import ResourceWeight, Strategy
from estimator.cluster.claims import Claim
from estimator.estimation.filter import feasible_n
from estimator.placing.place import Seating
from estimator.snapshot import Snapshot
from federation.model.node_plans import ShareOrder
from federation.model.resources import CPU, MEMORY
from federation.model.shapes import ReservationKey
from federation.model.workload import NodeClaim, ReplicaRequirements

# Each costs about as much as an order of its own: more would hold up the loop.
MOST_MOVED: Final = 200
# Scores that fill nodes use up one resource of a node and waste what it has left of the others.
# Where hardly any room is left, all find nodes only where these are used up together.
BALANCED: Final = BalancedAllocation(
    weights=(ResourceWeight(resource=CPU, weight=1), ResourceWeight(resource=MEMORY, weight=1))
)


def seated_anew(
    held: Mapping[ReservationKey, Sequence[Claim]],
    asked: Mapping[ReservationKey, ShareOrder],
    snapshot: Snapshot,
    strategy: Strategy,
    seated: Callable[[Sequence[ShareOrder], Strategy], Sequence[Seating]],
) -> dict[ReservationKey, Seating]:
    """Nodes for what is ``asked`` and for all that is ``held``: the largest first, else those that
    the fewest nodes suit; by the strategy's scores, else by how they even out what nodes have left,
    then also in the order of their claims.

    Nothing where that does not find one for every replica, or too many would have to move.
    """
    if not held or len(held) > MOST_MOVED:
        return {}
    shares = {key: share_like(key, claims[-1], replicas_of(claims)) for key, claims in held.items()}
    shares.update(asked)
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
