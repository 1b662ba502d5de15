"""The history of free room: what each cluster had free, for as long as this control plane looks.

Must not ask the database: samples are kept in memory, fewer of them for older times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from federation.model.errors import LimitExceeded
from federation.model.resources import CPU, MEMORY
from federation.services.threads import DRAWING
from federation.web.ui.overview import FleetPicture, Meter, Overview

RESOURCES: Final = (CPU, MEMORY)
# So many samples cover a day in the end; until then they lie closer.
MOST_SAMPLES: Final = 240
FIRST_STEP_SECONDS: Final = 11.25
LAST_STEP_SECONDS: Final = 360.0
WIDTH, HEIGHT = 100.0, 40.0
# Of a curve, in words.
MOST_POINTS: Final = 12


class RoomPoint(NamedTuple):
    """What was free at one instant, and all there was, in base units."""

    at: float
    free: int
    allocatable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomCurve:
    """One resource of a cluster over time, the oldest first; ``line`` and ``limit`` are corners of
    the curves of what was free and of all there was, in a picture of ``WIDTH`` times ``HEIGHT``.
    """

    resource: str
    points: tuple[RoomPoint, ...]
    line: str
    limit: str

    @property
    def least(self) -> RoomPoint:
        return min(self.points, key=lambda each: each.free)

    @property
    def newest(self) -> RoomPoint:
        return self.points[-1]

    @property
    def told(self) -> Sequence[RoomPoint]:
        """Some of them, the newest first."""
        step = max(1, len(self.points) // MOST_POINTS)
        return self.points[::-1][::step][:MOST_POINTS]


class _Sample(NamedTuple):
    """All clusters at one instant: ``free_rc`` and ``allocatable_rc`` by resource and column."""

    at: float
    columns: Mapping[str, int]
    free_rc: npt.NDArray[np.int64]
    allocatable_rc: npt.NDArray[np.int64]

    def point(self, resource: int, column: int) -> RoomPoint:
        free, whole = self.free_rc[resource, column], self.allocatable_rc[resource, column]
        return RoomPoint(self.at, int(free), int(whole))


class RoomHistory:
    """At most ``MOST_SAMPLES``: when they are as many, every second one goes, and from then on they
    are taken half as often; once that is every ``LAST_STEP_SECONDS``, the oldest goes.
    """

    def __init__(self) -> None:
        self.step_seconds = FIRST_STEP_SECONDS
        self._samples: list[_Sample] = []

    async def keep_looking(self, overview: Overview) -> None:
        """Takes samples until it is cancelled."""
        while True:
            # Where too many pages wait to be drawn, the next sample does.
            with suppress(LimitExceeded):
                self.add(await DRAWING.run(_sample_of, await overview.apart()))
            await asyncio.sleep(self.step_seconds)

    def add(self, sample: _Sample) -> None:
        before = self._samples[-1].columns if self._samples else {}
        if before == sample.columns:
            # Mostly they are the same clusters.
            sample = sample._replace(columns=before)
        self._samples.append(sample)
        if len(self._samples) < MOST_SAMPLES:
            return
        if self.step_seconds < LAST_STEP_SECONDS:
            self.step_seconds *= 2
            del self._samples[1::2]
        else:
            del self._samples[0]

    def curves(self, cluster: str, now: Mapping[str, Meter], at: float) -> list[RoomCurve]:
        """Of one cluster, up to what it has ``now``; none without anything before that."""
        found = []
        for row, resource in enumerate(RESOURCES):
            points = [
                each.point(row, each.columns[cluster])
                for each in tuple(self._samples)
                if cluster in each.columns
            ]
            if points and resource in now:
                meter = now[resource]
                points.append(RoomPoint(at, meter.free, meter.allocatable))
                found.append(_curve(resource, points))
        return found


def _sample_of(picture: FleetPicture) -> _Sample:
    meters_rc = [[row.meter(name) for row in picture.rows] for name in RESOURCES]
    return _Sample(
        picture.at,
        {row.name: c for c, row in enumerate(picture.rows)},
        np.array([[each.free for each in meters] for meters in meters_rc], dtype=np.int64),
        np.array([[each.allocatable for each in meters] for meters in meters_rc], dtype=np.int64),
    )


def _curve(resource: str, points: Sequence[RoomPoint]) -> RoomCurve:
    first, span = points[0].at, max(1e-9, points[-1].at - points[0].at)
    most = max(1, *(max(each.allocatable, each.free) for each in points))

    def corners(amounts: Sequence[int]) -> str:
        """It stays as it was until the next sample."""
        made, before = [], amounts[0]
        for point, amount in zip(points, amounts, strict=True):
            x = WIDTH * (point.at - first) / span
            made += [f"{x:.2f},{_height(before, most)}", f"{x:.2f},{_height(amount, most)}"]
            before = amount
        return " ".join(made)

    return RoomCurve(
        resource=resource,
        points=tuple(points),
        line=corners([each.free for each in points]),
        limit=corners([each.allocatable for each in points]),
    )


def _height(amount: int, most: int) -> str:
    return f"{HEIGHT - HEIGHT * amount / most:.2f}"
