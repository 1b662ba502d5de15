"""The lease by which one of several binders is the one that binds.

Must not decide who holds it: ``estimator.binder.election`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEASE_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease as stored. ``holder`` is empty when it was given back. Times are Unix seconds.

    ``version`` is the API server's, empty for a lease that does not exist yet.
    """

    holder: str
    duration_seconds: float = LEASE_SECONDS
    acquired_at: float = 0.0
    renewed_at: float = 0.0
    transitions: int = 0
    version: str = ""
