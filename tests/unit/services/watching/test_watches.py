"""Resumption and end of watches; tests/api covers all else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from federation.model.errors import Unavailable
from federation.services.journal import Position
from federation.services.watching.watches import Watches

FIRST, SECOND = Position(1), Position(2)


async def test_while_memory_is_behind_the_journal_nothing_is_resumed_from_later() -> None:
    is_current = True
    feed = SimpleNamespace(position=FIRST, history="", observe=lambda _: None)
    subject = SimpleNamespace(is_current=lambda: is_current)
    watches: Watches[str, str] = Watches(cast(Any, None), cast(Any, feed), cast(Any, subject))
    assert watches.position == FIRST
    is_current, feed.position = False, SECOND
    assert watches.position == FIRST
    is_current = True
    assert watches.position == SECOND
    await watches.close()
    with pytest.raises(Unavailable, match="is stopping"):
        await anext(watches.watch("", ""))
