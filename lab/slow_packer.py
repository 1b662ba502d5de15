"""The checker of promises: places one replica at a time, and believes nothing it is told.

Shares no code with the packing it checks but the meaning of labels and taints. Must not be fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from federation.capacity.assignments import Assignment
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import Pools
from federation.model.reservations import PromiseCertificate
from federation.model.workload import ReplicaRequirements

# A node: its pool, and what it has left in the order of the cells' resources.
Node = tuple[int, tuple[int, ...]]


def nodes_of(pools: Pools) -> Counter[Node]:
    """Every node as no more than its cell says of it."""
    cells = pools.cells
    nodes: Counter[Node] = Counter()
    for place in range(len(cells)):
        node = int(cells.pool_k[place]), tuple(cells.min_rk[:, place].tolist())
        nodes[node] += int(cells.count_k[place])
    return nodes


def after_one(node: Node, resources: Sequence[str], request: Mapping[str, int]) -> Node | None:
    """The node with one more pod, None where it has no room."""
    asked = {name: amount for name, amount in request.items() if amount > 0} | {"pods": 1}
    if not asked.keys() <= set(resources):
        return None
    pool, free = node
    left = tuple(has - asked.get(name, 0) for name, has in zip(resources, free, strict=True))
    return (pool, left) if min(left) >= 0 else None


def broken_promise(pools: Pools, holdings: Iterable[Assignment]) -> str:
    """Replay every step on the nodes of a report; what does not go as it says, else nothing."""
    nodes = nodes_of(pools)
    for holding in holdings:
        requirements = holding.outstanding.requirements
        # What is unproven may be held against pools of which nothing is known.
        is_unproven = holding.outstanding.certificate is PromiseCertificate.UNPROVEN
        least = Match.UNKNOWN if is_unproven else Match.YES
        placed = 0
        for step in holding.steps:
            verdict = pool_match(pools.pools[step.pool], pools.label_keys, requirements.node_claim)
            if verdict < least:
                return f"a pool that does not suit: {step}"
            for _ in range(step.nodes):
                node: Node | None = (step.pool, step.free)
                if not nodes[step.pool, step.free]:
                    return f"no such node is left: {step}"
                nodes[step.pool, step.free] -= 1
                for _ in range(step.replicas):
                    node = node and after_one(node, pools.cells.resources, requirements.request)
                    placed += 1
                if node is None:
                    return f"the node is too small: {step}"
                nodes[node] += 1
        if placed + holding.unplaced != holding.outstanding.to_pack:
            return f"{placed} placed and {holding.unplaced} not: {holding.outstanding}"
    return ""


def fits_one_at_a_time(pools: Pools, requirements: ReplicaRequirements) -> int:
    """How many replicas find room when each goes to any node that has some."""
    nodes = nodes_of(pools)
    count = 0
    for (pool, free), number in nodes.items():
        if (
            pool_match(pools.pools[pool], pools.label_keys, requirements.node_claim)
            is not Match.YES
        ):
            continue
        node: Node | None = (pool, free)
        on_each = 0
        while node is not None:
            node = after_one(node, pools.cells.resources, requirements.request)
            on_each += node is not None
        count += on_each * number
    return count
