"""Row structs of small documents: agents' facts, node plans, nominations, and the breaker.

Must not know in which statements they are written.
"""

from __future__ import annotations

from typing import Final

from federation.failover.breaker import Breaker, ScopeKind
from federation.history.rows import Document, DocumentPart, Documents, always
from federation.history.workload_rows import TargetRow
from federation.model.node_plans import NodePlan
from federation.model.waiting import Nomination
from federation.services.agent_values import AgentFacts, Placer


class FactsRow(Document, frozen=True, kw_only=True):
    """``cluster.facts``: an ``AgentFacts``. SQL reads the agent's version."""

    agent_version: str = always("")
    kubernetes_version: str = ""
    placer: Placer = Placer.NONE
    api_enablements: frozenset[tuple[str, str]] | None = None


class NodeShareRow(DocumentPart, frozen=True, kw_only=True):
    """A ``NodeShare``."""

    node: str
    component: str = ""
    replicas: int
    score: float = always(0.0)
    scale: float = always(100.0)


class NodePlanRow(Document, frozen=True, kw_only=True):
    """``node_plan.body``: a ``NodePlan``."""

    cluster: str = ""
    nodes: tuple[NodeShareRow, ...] = ()
    unplaced: int = 0
    message: str = ""
    strategy: str = ""
    claimed: bool = False


class NominationRow(Document, frozen=True, kw_only=True):
    """``waiting.nominated``: a ``Nomination``. SQL reads ``until``.

    ``leaving`` are a binding's key, a cluster, replicas and a decision each.
    """

    since: float
    until: float
    shares: tuple[TargetRow, ...]
    leaving: tuple[tuple[str, str, int, str], ...]
    avoids: tuple[str, ...] = ()


class FreezeRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Freeze``."""

    by: str
    since: float
    reason: str


class FreezeScopeRow(DocumentPart, frozen=True, kw_only=True):
    """A ``FreezeScope``."""

    kind: ScopeKind
    name: str


class FrozenPlaceRow(DocumentPart, frozen=True, kw_only=True):
    """A ``FrozenPlace``."""

    place: FreezeScopeRow
    freeze: FreezeRow
    clusters: frozenset[str] = always(frozenset())


class BreakerRow(Document, frozen=True, kw_only=True):
    """``failover.body``: a ``Breaker``."""

    freeze: FreezeRow | None = None
    accepted: frozenset[str] = always(frozenset())
    places: tuple[FrozenPlaceRow, ...] = ()


FACTS: Final = Documents(AgentFacts, FactsRow, "facts of agents")
NODE_PLANS: Final = Documents(NodePlan, NodePlanRow, "node plans")
NOMINATIONS: Final = Documents(Nomination, NominationRow, "nominations")
BREAKERS: Final = Documents(Breaker, BreakerRow, "the state of failover")
