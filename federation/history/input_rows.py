"""The row struct of what a decision knew of other bindings.

Must not know in which bodies it stands.
"""

from __future__ import annotations

from typing import Final

from federation.history.rows import DocumentPart, Rows
from federation.model.reasons import Reason
from federation.scheduler.state import Surroundings


class SurroundingsRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Surroundings``."""

    affinity_peers: tuple[frozenset[str], ...] = ()
    anti_affinity_peers: tuple[frozenset[str], ...] = ()
    observed_affinity: str = ""
    is_settled: bool = False
    triggers: tuple[Reason, ...] = ()


SURROUNDINGS: Final = Rows(Surroundings, SurroundingsRow, "inputs of decisions")
