"""The shares that an agent has to place on nodes, and the nodes that it chose.

Plain values. Must not choose nodes: ``estimator.placement`` does.
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
    """An order to choose nodes for one cluster's shares; claims are held by ``binding_key``.

    ``decision_id`` is empty for a decision that was not stored. ``planned``: every replica gets a
    claim, or is reported without one.
    """

    decision_id: str = ""
    binding_key: str
    shares: tuple[ShareOrder, ...]
    planned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShare:
    """Replicas placed on one node, with the node's score for the first of them.

    ``scale`` is the maximum score of the strategy, or the minimum with its sign turned.
    """

    node: str
    component: str = ""
    replicas: int
    score: float = 0.0
    scale: float = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPlan:
    """A promise by plan that an agent can no longer keep; ``decision`` is the newest that it
    has.
    """

    binding: str
    component: str = ""
    decision: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """The nodes of one cluster's shares. ``message`` says why replicas are ``unplaced``.

    The control plane fills in ``cluster``. ``claimed``: every replica that is not bound has a
    claim, and a placer there follows claims.
    """

    cluster: str = ""
    nodes: tuple[NodeShare, ...] = ()
    unplaced: int = 0
    message: str = ""
    strategy: str = ""
    claimed: bool = False
