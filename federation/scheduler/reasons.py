"""Why a binding could not be scheduled, in words with numbers.

Must not decide: it reads what the stages recorded.
"""

from __future__ import annotations

import numpy as np

from federation.scheduler.arrays import BoolArray
from federation.scheduler.trace import FilterTrace


def refusals_text(filtering: FilterTrace) -> str:
    """How many clusters were refused, by reason; empty when none was.

    For instance ``2 of 5 clusters were refused: is not Ready (1), has no region (1)``.
    """
    refused = filtering.refusal_c[filtering.refusal_c >= 0]
    if not len(refused):
        return ""
    counts = np.bincount(refused, minlength=len(filtering.refusals)).tolist()
    most_first = sorted(
        zip(counts, filtering.refusals, strict=True), key=lambda pair: (-pair[0], pair[1].reason)
    )
    reasons = ", ".join(f"{refusal.reason} ({count})" for count, refusal in most_first)
    return f"{len(refused)} of {len(filtering.refusal_c)} clusters were refused: {reasons}"


def unknown_text(unknown_c: BoolArray, feasible_c: BoolArray) -> str:
    """How many feasible clusters count as full because nothing could estimate them."""
    count = int((unknown_c & feasible_c).sum())
    return f"{count} clusters have no estimate and count as full" if count else ""
