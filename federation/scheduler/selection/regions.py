"""Choosing regions as Karmada does, in polynomial time.

Must not look into regions: it sees their cluster counts and scores only.

Karmada walks the regions by (clusters ascending, score descending, name) and tries every
combination of them, depth first. A combination ends at the first region where both minima hold.
The best one has the largest sum of scores, then the most clusters, then was found first. Last,
the shortest run of its best-scored regions that keeps both minima by itself replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray

_SAFE = 2**61


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A region with candidates: how many, and what it scores."""

    name: str
    clusters: int
    score: int


def choose_regions(
    regions: Sequence[Region], *, least: int, most: int, least_clusters: int
) -> tuple[Region, ...]:
    """Between ``least`` and ``most`` regions with at least ``least_clusters`` clusters.

    Best score first. Empty when no combination has enough clusters.
    """
    walk = sorted(regions, key=lambda region: (region.clusters, -region.score, region.name))
    most = min(most, len(walk))
    if least > most or sum(region.clusters for region in walk[len(walk) - most :]) < least_clusters:
        return ()
    if sum(region.clusters for region in walk[:least]) >= least_clusters:
        chosen = _best_of_size(walk, least)
    else:
        chosen = _best_combination(walk, least, most, least_clusters)
    ranked = sorted(chosen, key=lambda region: (-region.score, region.name))
    counted = 0
    for length, region in enumerate(ranked, start=1):
        counted += region.clusters
        if length >= least and counted >= least_clusters:
            return tuple(ranked[:length])
    return tuple(ranked)


def _best_of_size(walk: Sequence[Region], size: int) -> Sequence[Region]:
    """Any ``size`` regions have enough clusters: the best ones are the best combination."""
    return sorted(walk, key=lambda region: (-region.score, -region.clusters, region.name))[:size]


def _best_combination(
    walk: Sequence[Region], least: int, most: int, least_clusters: int
) -> Sequence[Region]:
    """Dynamic programme over (regions taken, clusters taken), from the last region to the first.

    Of equally good combinations the walk finds that one first which takes the earlier regions.
    """
    taken_i = _worth_taking(walk, least, most, least_clusters)
    chosen: list[Region] = []
    clusters = 0
    for region, taken in zip(walk, taken_i, strict=True):
        if len(chosen) >= least and clusters >= least_clusters:
            break
        if taken[len(chosen), clusters]:
            chosen.append(region)
            clusters = min(clusters + region.clusters, least_clusters)
    return chosen


def _worth_taking(
    walk: Sequence[Region], least: int, most: int, least_clusters: int
) -> list[BoolArray]:
    """Per region and (regions taken before, clusters taken before): whether taking it is best."""
    # One number per combination, score before clusters; beyond 64 bits in Python's integers.
    scale = sum(region.clusters for region in walk) + 1
    lowest = min(region.score for region in walk)
    worths = [(region.score - lowest + 1) * scale + region.clusters for region in walk]
    base = (lowest - 1) * scale
    dtype: Any = np.int64
    if (max(worths) + abs(base)) * (most + 1) >= _SAFE:
        dtype = object
    never = -(2 * (max(worths) + abs(base)) * (most + 1)) - 1
    best_rc: npt.NDArray[Any] = np.full((most + 1, least_clusters + 1), never, dtype=dtype)
    # What the common base adds depends on the number of regions taken alone: owed at the end.
    ends_r = np.array([base * count for count in range(least, most + 1)], dtype=dtype)
    best_rc[least:, least_clusters] = ends_r
    taken_i: list[BoolArray] = []
    with_rc = np.empty_like(best_rc[1:])
    for region, worth in zip(reversed(walk), reversed(worths), strict=True):
        full = max(least_clusters - region.clusters, 0)
        with_rc[:, :full] = best_rc[1:, region.clusters : region.clusters + full]
        with_rc[:, full:] = best_rc[1:, least_clusters:]
        with_rc += worth
        taken_i.append(with_rc >= best_rc[:-1])
        np.maximum(best_rc[:-1], with_rc, out=best_rc[:-1])
        best_rc[least:, least_clusters] = ends_r
    taken_i.reverse()
    return taken_i
