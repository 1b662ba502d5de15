"""What is logged of work that keeps failing."""

from __future__ import annotations

import logging

import pytest

from federation.model.errors import PluginFailed, Unavailable
from federation.services.troubles import PLUGIN_FAILURES, Trouble, tell_plugin_failure


def test_trouble_is_told_when_it_begins_changes_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    trouble = Trouble(logging.getLogger("test"), "nothing is done")
    trouble.over()
    for why in ("away", "away", "full", "full"):
        trouble.met(Unavailable(why))
    trouble.over()
    trouble.over()
    trouble.met(Unavailable("full"))
    assert caplog.messages == [
        "nothing is done",
        "nothing is done",
        "over: nothing is done",
        "nothing is done",
    ]
    told = [getattr(each, "fields", {}).get("why") for each in caplog.records]
    assert told == ["away", "full", None, "full"]


def test_what_nobody_expected_is_told_once_with_its_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trouble = Trouble(logging.getLogger("test"), "nothing is done")
    for number in range(3):
        trouble.met(RuntimeError(f"number {number}"))
    trouble.met(ValueError("another kind"))
    assert [each.exc_info is not None for each in caplog.records] == [True, True]
    assert [each.levelno for each in caplog.records] == [logging.ERROR, logging.ERROR]


def test_what_happens_to_many_is_told_again_after_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    trouble = Trouble(
        logging.getLogger("test"), "not stored", again_seconds=60.0, clock=lambda: now
    )
    for now in (0.0, 30.0, 59.0, 60.0, 61.0):
        for why in ("away", "full"):
            trouble.met(Unavailable(why), decision=f"at {now:g}")
    told = [getattr(each, "fields", {}) for each in caplog.records]
    assert [(each["why"], each["decision"]) for each in told] == [
        ("away", "at 0"),
        ("full", "at 0"),
        ("away", "at 60"),
        ("full", "at 60"),
    ]


def test_what_is_not_told_again_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 0.0
    trouble = Trouble(
        logging.getLogger("test"), "not stored", again_seconds=60.0, clock=lambda: now
    )
    for now in (0.0, 1.0, 2.0, 60.0, 61.0):
        trouble.met(Unavailable("away"), at=now)
    trouble.over()
    told = [getattr(each, "fields", {}).get("again") for each in caplog.records]
    assert told == [None, 2, 1]


def fail_of(name: str) -> None:
    try:
        {}[name]
    except KeyError as error:
        text = f"The scheduler plugin Prices failed: it raised {error!r}."
        raise PluginFailed(text) from error


def test_a_plugin_that_keeps_failing_is_told_once_with_what_it_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    PLUGIN_FAILURES.over()
    caplog.clear()
    for name in ("web", "cart", "db"):
        with pytest.raises(PluginFailed) as failed:
            fail_of(name)
        tell_plugin_failure(failed.value)
    tell_plugin_failure(PluginFailed("The scheduler plugin Prices failed: it answered nothing."))
    raised, answered = caplog.records
    assert raised.exc_info is not None
    assert raised.exc_info[0] is KeyError
    assert "it raised KeyError('web')" in getattr(raised, "fields", {})["why"]
    assert not answered.exc_info
    assert raised.levelno == answered.levelno == logging.WARNING


def test_faults_of_one_kind_in_two_places_are_two(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(logging.getLogger("test"), "nothing is done")

    def here() -> None:
        raise RuntimeError

    def there() -> None:
        raise RuntimeError

    for fail in (here, there, here, there):
        try:
            fail()
        except RuntimeError as error:
            trouble.met(error)
    assert len(caplog.records) == 2
