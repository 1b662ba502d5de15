"""A decision with what its pages show of it: the funnel, and the clusters.

Must not decide anything, nor know how it is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from federation.codec.decision_words import bound_word, outcome_name, source_word, why
from federation.codec.decisions import RecordView, decision_to_message
from federation.codec.funnel import FunnelStep, by_importance, funnel_steps
from federation.codec.hidden_names import hide_names
from federation.model.access import EVERYTHING, Scope
from federation.v1 import scheduling_pb2

# How facts are named that say how much a plugin counts.
WEIGHT_OF: Final = "scoreWeight["


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPicture:
    """A decision with what its pages show, ``clusters`` with the largest shares first; ``weights``
    say by plugin how much its score counts, where that is not 1.
    """

    message: scheduling_pb2.Decision
    outcome: str
    steps: tuple[FunnelStep, ...]
    clusters: tuple[scheduling_pb2.ClusterTrace, ...]
    most_replicas: int
    promises: Mapping[str, scheduling_pb2.ClusterPromise]
    weights: Mapping[str, str]

    def scored(self, cluster: scheduling_pb2.ClusterTrace) -> str:
        """What each plugin gave, and how much that counts."""
        parts = (
            f"{plugin} {score} of 100, weight {self.weights.get(plugin, '1')}"
            for plugin, score in sorted(cluster.scores.items())
        )
        return "; ".join(parts) or "no plugin scored it"

    def why(self, cluster: scheduling_pb2.ClusterTrace) -> str:
        return why(cluster)

    def source(self, cluster: scheduling_pb2.ClusterTrace) -> str:
        source, bound = source_word(cluster.source), bound_word(cluster.bound)
        return source if bound in ("-", "none") else f"{source}, {bound}"


def decision_picture(record: RecordView, scope: Scope = EVERYTHING) -> DecisionPicture:
    """As who may see a scope reads it. Of a large fleet that takes too long for an event loop."""
    message = decision_to_message(record, trace=True)
    hide_names(message, scope)
    clusters = by_importance(message.trace.clusters)
    facts = {each.name: each.value for each in message.trace.facts}
    return DecisionPicture(
        message=message,
        outcome=outcome_name(message.outcome),
        steps=tuple(funnel_steps(message, clusters)),
        clusters=clusters,
        most_replicas=max((each.replicas for each in clusters), default=0),
        promises={each.cluster: each for each in message.promises},
        weights={
            fact.removeprefix(WEIGHT_OF).rstrip("]"): value
            for fact, value in facts.items()
            if fact.startswith(WEIGHT_OF)
        },
    )
