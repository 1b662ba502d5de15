"""What an agent is asked to place on its nodes, and where it has placed it.

Plain values. Must not choose nodes: ``estimator.placing`` does.
"""

from __future__ import annotations

from dataclasses import dataclass

from federation.model.workload import ReplicaRequirements


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOrder:
    """Replicas of one component to place; single-template workloads have no component name."""

    component: str = ""
    replicas: int
    requirements: ReplicaRequirements


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOrder:
    """Choose nodes for one cluster's shares of a decision; claims are held by ``binding_key``.

    ``decision_id`` is empty for a decision that was not stored. ``planned``: every replica is to
    have a claim, or to be told that it has none.
    """

    decision_id: str = ""
    binding_key: str
    shares: tuple[ShareOrder, ...]
    planned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """Replicas placed on one node, with the node's score for the first of them.

    The ``scale`` is the most that the strategy can score, or the least, with its sign turned.
    """

    node: str
    component: str = ""
    replicas: int
    score: float = 0.0
    scale: float = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPlan:
    """A promise by plan that an agent cannot keep any more.

    ``decision`` is the newest that it was told of.
    """

    binding: str
    component: str = ""
    decision: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Where one cluster's shares go. ``message`` says why, when ``unplaced`` is not 0.

    ``cluster`` is filled in by the control plane. ``claimed``: every replica that is not bound
    has a claim, and a placer there follows claims.
    """

    cluster: str = ""
    nodes: tuple[NodeShare, ...] = ()
    unplaced: int = 0
    message: str = ""
    strategy: str = ""
    claimed: bool = False
