"""What is logged of work that keeps failing, by the example of plugins."""

from __future__ import annotations

import logging

import pytest

from federation.model.errors import PluginFailed
from federation.services.troubles import PLUGIN_FAILURES, TOLD_AGAIN_SECONDS, tell_plugin_failure

PRICES = "The scheduler plugin Prices failed"


def fail(what: str = "web") -> None:
    try:
        {}[what]
    except KeyError as error:
        raise PluginFailed(f"{PRICES}: it raised {error!r}.") from error


def test_trouble_is_told_once_a_while_with_its_stack_counted_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLUGIN_FAILURES.over()
    caplog.clear()
    caplog.set_level(logging.INFO)
    for now in (0.0, 1.0, 2.0, TOLD_AGAIN_SECONDS, TOLD_AGAIN_SECONDS + 1):
        monkeypatch.setattr(PLUGIN_FAILURES, "_clock", lambda now=now: now)
        for name in ("web", "cart"):
            with pytest.raises(PluginFailed) as failed:
                fail(name)
            tell_plugin_failure(failed.value)
        tell_plugin_failure(PluginFailed(f"{PRICES}: it answered nothing."))
    # What nobody expected, raised in two places, is two causes, whatever it says.
    for _ in range(2):
        for work in (lambda: {}["x"], lambda: int("x")):
            try:
                work()
            except (KeyError, ValueError) as error:
                PLUGIN_FAILURES.met(error)
    PLUGIN_FAILURES.over()
    PLUGIN_FAILURES.over()
    told = [(each.levelname, bool(each.exc_info), vars(each)["fields"]) for each in caplog.records]
    assert [(level, is_raised, fields.get("again")) for level, is_raised, fields in told] == [
        ("WARNING", True, None),
        ("WARNING", False, None),
        ("WARNING", True, 5),
        ("WARNING", False, 2),
        ("ERROR", True, None),
        ("ERROR", True, None),
        ("INFO", False, 6),
    ]
    assert "it raised KeyError('web')" in told[0][2]["why"]
    assert caplog.messages[-1] == "over: scheduler plugin failed"
