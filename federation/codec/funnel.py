"""A decision as a funnel: from all clusters to those that promised, and what left at each step.

Must not decide anything, nor know how it is drawn: pages and terminals do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from federation.model.readable import counted
from federation.v1 import scheduling_pb2

MOST_REASONS: Final = 8
MOST_NAMES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelStep:
    """How many clusters are left after a step, which, and how many left there for which reason."""

    title: str
    left: int
    names: Sequence[str] = ()
    note: str = ""
    reasons: Sequence[tuple[str, int]] = ()
    others: int = 0

    @property
    def more(self) -> int:
        """How many are left beside those that are named."""
        return self.left - len(self.names)


def by_importance(
    clusters: Iterable[scheduling_pb2.ClusterTrace],
) -> tuple[scheduling_pb2.ClusterTrace, ...]:
    """Those with the largest shares first, and those that a filter refused last."""
    return tuple(sorted(clusters, key=_importance))


def funnel_steps(
    message: scheduling_pb2.Decision, every: Sequence[scheduling_pb2.ClusterTrace]
) -> list[FunnelStep]:
    """``every`` are the clusters of its trace ``by_importance``. Of a large fleet that takes too
    long for an event loop.
    """
    passed = [each for each in every if not each.filter]
    refused = Counter(f"{each.filter}: {each.reason}" for each in every if each.filter)
    selected = [each for each in passed if each.selected]
    given = [each for each in selected if each.replicas]
    facts = {each.name: each.value for each in message.trace.facts}
    certificates = Counter(each.certificate for each in message.promises)
    return [
        FunnelStep(title="clusters in the fleet", left=len(every), names=_first(every)),
        _filtered(passed, refused),
        FunnelStep(title="scored", left=len(passed), names=_first(passed), note=_scores(passed)),
        FunnelStep(
            title="selected",
            left=len(selected),
            names=_first(selected),
            note=facts.get("selection", ""),
            reasons=_count("not selected", len(passed) - len(selected)),
        ),
        FunnelStep(
            title="given replicas",
            left=len(given),
            names=_first(given),
            note=_division(facts, given),
            reasons=_count("their share is 0", len(selected) - len(given)),
        ),
        FunnelStep(
            title="promised",
            left=len(message.promises),
            names=[each.cluster for each in message.promises[:MOST_NAMES]],
            note=", ".join(f"{count} {kind}" for kind, count in sorted(certificates.items())),
        ),
    ]


def _filtered(passed: Sequence[scheduling_pb2.ClusterTrace], refused: Counter[str]) -> FunnelStep:
    common = refused.most_common(MOST_REASONS)
    return FunnelStep(
        title="passed every filter",
        left=len(passed),
        names=_first(passed),
        reasons=common,
        others=refused.total() - sum(count for _, count in common),
    )


def _first(clusters: Sequence[scheduling_pb2.ClusterTrace]) -> list[str]:
    """The names of those that promise most, as far as they are told; they come in that order."""
    return [each.name for each in clusters[:MOST_NAMES]]


def _count(reason: str, count: int) -> list[tuple[str, int]]:
    return [(reason, count)] if count > 0 else []


def _scores(passed: Sequence[scheduling_pb2.ClusterTrace]) -> str:
    if not passed:
        return ""
    scores = [each.score for each in passed]
    least, most = min(scores), max(scores)
    return f"all {most} of 100" if least == most else f"{least} to {most} of 100"


def _division(facts: dict[str, str], given: Sequence[scheduling_pb2.ClusterTrace]) -> str:
    seats = sum(each.remainder_seat for each in given)
    words = [facts.get("strategy", ""), counted(sum(each.replicas for each in given), "replica")]
    words += [f"{seats} of them by remainder"] if seats else []
    return ", ".join(filter(None, words))


def _importance(cluster: scheduling_pb2.ClusterTrace) -> tuple[Any, ...]:
    unimportant = not cluster.selected, bool(cluster.filter)
    return -cluster.replicas, *unimportant, -cluster.score, cluster.name
