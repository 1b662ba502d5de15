"""What people should know beside a decision: what had no effect, and what it rests on.

Must not decide anything, nor repeat what the reason says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from federation.model.estimate import BLIND_UP_TO, Estimates, Source
from federation.model.placement import Binding, PreemptionPolicy

PRIORITY: Final = (
    "spec.schedulePriority.priority orders bindings that are decided together; "
    "nothing waits in a queue yet"
)
PREEMPTION: Final = "spec.preemptionPolicy has no effect: nothing is preempted yet"
BLIND: Final = (
    "the node selector and affinity were ignored in {clusters} clusters, "
    "whose reports tell no nodes apart"
)


def warnings_of(binding: Binding, availability: Estimates) -> tuple[str, ...]:
    """One sentence each."""
    return tuple(_warnings(binding, availability))


def _warnings(binding: Binding, availability: Estimates) -> Iterator[str]:
    if binding.priority:
        yield PRIORITY
    if binding.preemption_policy is not PreemptionPolicy.NEVER:
        yield PREEMPTION
    parts = [binding.requirements, *(each.requirements for each in binding.components)]
    if any(each.chooses_nodes for each in parts):
        source_c = availability.source_c
        blind = int(np.count_nonzero((source_c > Source.NONE) & (source_c <= BLIND_UP_TO)))
        if blind:
            yield BLIND.format(clusters=blind)
