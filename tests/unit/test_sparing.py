"""The garbage collector looks at nothing twice, and still frees what is garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from federation.serving import MOSTLY_GARBAGE, spare_survivors, sparing_the_fleet


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
