"""What the bridge did since it began, for its log.

Must not decide anything by it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

MOST_NAMED: Final = 20


@dataclass(slots=True)
class Counts:
    """What the bridge did since it began."""

    scheduled: int = 0
    failed: int = 0
    written: int = 0
    held: int = 0
    unknown_fields: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        """In one line, for the log."""
        parts = [
            f"{self.scheduled} placed",
            f"{self.failed} not placed",
            f"{self.written} written",
        ]
        if self.held:
            parts.append(f"{self.held} kept that Karmada does not list")
        if self.unknown_fields:
            fields = ", ".join(sorted(self.unknown_fields)[:MOST_NAMED])
            parts.append(f"fields of a newer Karmada passed over: {fields}")
        return "; ".join(parts)
