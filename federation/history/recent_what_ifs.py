"""What-ifs over decisions of the last hours: what is asked, and what is answered in figures.

Travels between processes. Must not talk to the database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from federation.history.changes import WhatIfChange
from federation.history.counterfactual import Counterfactual
from federation.history.figures import FIGURES, Pair, by_cluster, differing
from federation.history.packed_inputs import InputReader
from federation.history.trace_files import TraceChunk
from federation.history.what_ifs import DifferentDecision, WhatIf
from federation.history.windows import events_of, take
from federation.history.worlds import REPLICAS
from federation.model.placement import Binding, Placement
from federation.scheduler.plugins.profile import Profiles

MOST_CLUSTERS: Final = 100
SOURCE: Final = "the history"


class RecentQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """What is otherwise, and the decisions, the oldest first. ``policies`` is YAML."""

    without: tuple[str, ...]
    cordoned: tuple[str, ...]
    policies: str
    chunks: tuple[TraceChunk, ...]


class RecentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``figures`` are of everything, ``clusters`` replicas over the time; those
    that differ most first. ``unknown`` were named, and no fleet of those decisions had them.
    """

    decisions: int
    different: int
    skipped: int
    seconds: float
    figures: tuple[Pair, ...]
    clusters: tuple[Pair, ...]
    more_clusters: int
    first_different: tuple[DifferentDecision, ...]
    unknown: tuple[str, ...]


def answer_of(
    question: RecentQuestion,
    placement_of: Callable[[Binding], Placement | None] | None,
    profiles: Profiles,
) -> RecentAnswer:
    """Raises as ``Counterfactual`` does, and InvalidRequest where what is kept is damaged."""
    change = WhatIfChange(
        placement_of=placement_of,
        without=frozenset(question.without),
        cordoned=frozenset(question.cordoned),
    )
    counterfactual = Counterfactual(change, InputReader(profiles))
    for chunk in question.chunks:
        for event in events_of(chunk):
            take(counterfactual, event, chunk.bodies, SOURCE)
    return _told(counterfactual.result(), change)


def question_bytes(question: RecentQuestion) -> bytes:
    """Of many decisions this takes long."""
    return msgspec.msgpack.encode(question)


def _told(came: WhatIf, change: WhatIfChange) -> RecentAnswer:
    clusters = differing(by_cluster(came, REPLICAS))
    unknown = (change.without | change.cordoned) - came.clusters if came.decisions else ()
    return RecentAnswer(
        decisions=came.decisions,
        different=came.different,
        skipped=came.skipped,
        seconds=came.seconds,
        figures=tuple(
            Pair(each.words, each.of(came.recorded), each.of(came.changed)) for each in FIGURES
        ),
        clusters=tuple(clusters[:MOST_CLUSTERS]),
        more_clusters=max(0, len(clusters) - MOST_CLUSTERS),
        first_different=came.first_different,
        unknown=tuple(sorted(unknown)),
    )
