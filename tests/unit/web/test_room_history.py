"""The history of free room: which samples are kept, and what is drawn of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from federation.web.ui import room_history
from federation.web.ui.captions import curve_text
from federation.web.ui.overview import ClusterRow, FleetPicture, Health, Meter
from federation.web.ui.room_history import RoomHistory


def picture(at: float, **free: int) -> FleetPicture:
    rows = tuple(
        ClusterRow(
            name=name,
            health=Health.READY,
            note="",
            labels={},
            region="",
            provider="",
            meters={"cpu": Meter("cpu", allocatable=8000, running=8000 - millis)},
            nodes_ready=1,
            nodes=1,
            as_of=at,
            fullness=0.0,
        )
        for name, millis in free.items()
    )
    return FleetPicture(rows=rows, resources=("cpu",), at=at)


async def take_samples(
    history: RoomHistory, pictures: Iterable[FleetPicture], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let the history look at a fleet until there are no pictures of it any more."""
    remaining = iter(pictures)

    async def next_picture() -> FleetPicture:
        picture_now = next(remaining, None)
        if picture_now is None:
            raise asyncio.CancelledError
        return picture_now

    async def sleep(_: float) -> None:
        """The times of the pictures say how long the history has slept."""

    monkeypatch.setattr(room_history, "asyncio", SimpleNamespace(sleep=sleep))
    overview: Any = SimpleNamespace(apart=next_picture)
    with suppress(asyncio.CancelledError):
        await history.keep_looking(overview)


async def test_a_curve_goes_up_to_now(monkeypatch: pytest.MonkeyPatch) -> None:
    history = RoomHistory()
    now = {"cpu": Meter("cpu", allocatable=8000, running=7000)}
    assert history.curves("a", now, 30.0) == []
    await take_samples(history, [picture(10.0, a=8000, b=1), picture(20.0, a=2000)], monkeypatch)
    (cpu,) = history.curves("a", now, 30.0)
    assert [(each.at, each.free) for each in cpu.points] == [
        (10.0, 8000),
        (20.0, 2000),
        (30.0, 1000),
    ]
    assert cpu.line == "0.00,0.00 0.00,0.00 50.00,0.00 50.00,30.00 100.00,30.00 100.00,35.00"
    assert (cpu.least.free, [each.at for each in cpu.told]) == (1000, [30.0, 20.0, 10.0])
    assert curve_text(cpu).startswith("cpu free: 8 cores at 1970-01-01T00:00:10Z, 1 core least at")
    assert curve_text(cpu).endswith("1 core now")
    # One that was there for a while, and one that never was.
    assert len(history.curves("b", now, 30.0)[0].points) == 2
    assert history.curves("c", now, 30.0) == []
    # A fleet without reports has no amounts to show.
    assert history.curves("a", {}, 30.0) == []


async def test_a_day_is_kept_in_so_many_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    history, at, taken = RoomHistory(), 0.0, 0

    def pictures_of_three_days() -> Iterator[FleetPicture]:
        nonlocal at, taken
        while at < 3 * 86_400:
            yield picture(at, a=int(at) % 8000)
            assert len(history._samples) < room_history.MOST_SAMPLES
            at += history.step_seconds
            taken += 1

    await take_samples(history, pictures_of_three_days(), monkeypatch)
    assert history.step_seconds == room_history.LAST_STEP_SECONDS
    ages = [at - sample.at for sample in history._samples]
    assert 0.9 * 86_400 <= max(ages) <= 1.1 * 86_400
    # Nothing is kept twice of the clusters that stay.
    assert len({id(each.columns) for each in history._samples}) == 1
    assert taken < 2000
