"""The garbage collector looks at nothing twice, and still frees what is garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from federation import garbage
from federation.garbage import (
    MOSTLY_GARBAGE,
    SpareLooks,
    spare_survivors,
    sparing_the_fleet,
)


class Knot:
    """Something that only the collector can free, once nobody has it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def collector() -> Iterator[None]:
    """Left as it was."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(spare_survivors)
    gc.unfreeze()


@pytest.mark.usefixtures("collector")
def test_what_outlives_a_look_is_not_looked_at_again() -> None:
    with sparing_the_fleet():
        fleet = Knot()
    later = Knot()
    assert any(each is later for each in gc.get_objects())
    gc.collect(0)
    assert not any(each is later or each is fleet for each in gc.get_objects())
    assert gc.isenabled()


@pytest.mark.usefixtures("collector")
def test_garbage_is_freed_at_its_first_look() -> None:
    with sparing_the_fleet():
        pass
    knot = weakref.ref(Knot())
    gc.collect(0)
    assert knot() is None


@pytest.mark.usefixtures("collector")
def test_what_outlives_a_look_at_garbage_is_freed_at_a_later_one() -> None:
    with sparing_the_fleet():
        pass
    gc.disable()
    for _ in range(MOSTLY_GARBAGE):
        Knot()
    later = Knot()
    gc.collect(0)
    gc.enable()
    knot = weakref.ref(later)
    del later
    gc.collect(1)
    assert knot() is None


@pytest.mark.usefixtures("collector")
def test_cycles_that_were_spared_in_use_are_freed_once_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage, "LOOK_AT_MORE", 1_000)
    monkeypatch.setattr(garbage, "LOOK_AT_GROWTH", 1.0)
    with sparing_the_fleet():
        fleet = [Knot() for _ in range(100)]
    looks = SpareLooks()
    assert looks.look_if_grown() == 0
    # As calls of a plug-in: each is under way at a look, and leaves a cycle behind.
    leaked = []
    for _ in range(1_200):
        knot = Knot()
        gc.freeze()
        leaked.append(weakref.ref(knot))
        del knot
    gc.collect()
    assert all(each() is not None for each in leaked)
    assert looks.look_if_grown() >= len(leaked)
    assert all(each() is None for each in leaked)
    # The fleet is spared as before, and nothing has grown since.
    assert all(each.itself is each for each in fleet)
    assert not any(each is fleet for each in gc.get_objects())
    assert looks.look_if_grown() == 0
