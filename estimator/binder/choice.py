"""The node for one pod: where room was promised to it, else where it scores highest.

Pure. Equals go to the first node by name.
"""

from __future__ import annotations

import numpy as np

from estimator.placing.judgement import Judgement


def best_row(judgement: Judgement) -> int | None:
    """The row of the node; None when it fits nowhere."""
    promised_n = judgement.fits_n & judgement.own_n
    open_n = promised_n if promised_n.any() else judgement.fits_n
    if not open_n.any():
        return None
    score_n = judgement.scores().astype(np.float64)
    return int(np.argmax(np.where(open_n, score_n, -np.inf)))
