"""The history of free room: which samples are kept, and what is drawn of them."""

from __future__ import annotations

from federation.web.ui import room_history
from federation.web.ui.captions import curve_text
from federation.web.ui.overview import ClusterRow, FleetPicture, Health, Meter
from federation.web.ui.room_history import RoomHistory, _sample_of


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


def test_a_curve_goes_up_to_now() -> None:
    history = RoomHistory()
    now = {"cpu": Meter("cpu", allocatable=8000, running=7000)}
    assert history.curves("a", now, 30.0) == []
    history.add(_sample_of(picture(10.0, a=8000, b=1)))
    history.add(_sample_of(picture(20.0, a=2000)))
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


def test_a_day_is_kept_in_so_many_samples() -> None:
    history, at, taken = RoomHistory(), 0.0, 0
    while at < 3 * 86_400:
        history.add(_sample_of(picture(at, a=int(at) % 8000)))
        assert len(history._samples) < room_history.MOST_SAMPLES
        at += history.step_seconds
        taken += 1
    assert history.step_seconds == room_history.LAST_STEP_SECONDS
    ages = [at - each.at for each in history._samples]
    assert 0.9 * 86_400 <= max(ages) <= 1.1 * 86_400
    # Nothing is kept twice of the clusters that stay.
    assert len({id(each.columns) for each in history._samples}) == 1
    assert taken < 2000
