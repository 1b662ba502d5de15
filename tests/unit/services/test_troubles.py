"""What is logged of work that keeps failing."""

from __future__ import annotations

import logging

import pytest

from federation.model.errors import Unavailable
from federation.services.troubles import Trouble


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
