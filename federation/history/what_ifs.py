"""What-ifs: what came of recorded decisions, and of the same with a change.

Plain values. Must not decide anything.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from federation.history.worlds import Figures

# Decisions that differ: the first tell enough.
MOST_DIFFERENT: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentDecision:
    """A decision that comes out otherwise, and how; shares in the words of ``text_of``."""

    id: str
    binding: str
    at: float
    recorded: str
    changed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What came of the recorded decisions, and of the same with a change.

    ``skipped`` were taken as they were: what they were made on is not kept. ``retried`` are
    decisions that only the change brings about. ``clusters`` were in recorded fleets. ``sha256`` is
    over every decision with the change.
    """

    decisions: int = 0
    different: int = 0
    skipped: int = 0
    retried: int = 0
    first_different: tuple[DifferentDecision, ...] = ()
    seconds: float = 0.0
    clusters: frozenset[str] = frozenset()
    recorded: Figures = field(default_factory=Figures)
    changed: Figures = field(default_factory=Figures)
    sha256: str = ""

    def then(self, later: WhatIf) -> WhatIf:
        """Of both windows, one after the other."""
        both = bytes.fromhex(self.sha256) + bytes.fromhex(later.sha256)
        return WhatIf(
            decisions=self.decisions + later.decisions,
            different=self.different + later.different,
            skipped=self.skipped + later.skipped,
            retried=self.retried + later.retried,
            first_different=(*self.first_different, *later.first_different)[:MOST_DIFFERENT],
            seconds=self.seconds + later.seconds,
            clusters=self.clusters | later.clusters,
            recorded=self.recorded.then(later.recorded),
            changed=self.changed.then(later.changed),
            sha256=hashlib.sha256(both).hexdigest(),
        )
