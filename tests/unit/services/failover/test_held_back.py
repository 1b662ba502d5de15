"""While a stranger's transaction hides what others change, nobody is silent and nothing moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.services.fleet.held_back import HeldBack
from federation.services.fleet.journal_reader import Following
from lab.services import WEB, apply, decided, shares
from tests.unit.services.failover.conftest import SETTINGS, Drill


async def test_silence_begins_anew_once_the_changes_of_others_are_seen_again(
    drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = decided(await apply(drill.deciders.scheduling, replace(WEB, replicas=3)))
    drill.speaking.remove("a")
    held = HeldBack(since=0.0, holder=None)
    with monkeypatch.context() as patched:
        patched.setattr(Following, "held_back", property(lambda _: held))
        await drill.pass_time(3 * int(SETTINGS.lost_seconds))
        presence = drill.fleet.presence("a")
        assert presence is not None
        assert not presence.is_silent_at(drill.clock.now())
        assert drill.failover.silences.silent == {}
        assert drill.fleet.known("a").cluster.lost_since is None
    await drill.pass_time(int(SETTINGS.lost_seconds))
    assert shares((await drill.stored()).clusters) == placed
    # It is silent for long enough once it was listened to.
    await drill.pass_time(int(SETTINGS.lost_seconds))
    assert "a" not in shares((await drill.stored()).clusters)


async def test_a_cluster_that_looks_lost_while_others_are_not_seen_is_not_left(
    drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun before goes on once it is known how things stand."""
    placed = decided(await apply(drill.deciders.scheduling, replace(WEB, replicas=3)))
    drill.speaking.remove("a")
    await drill.pass_time(int(SETTINGS.lost_seconds) - 1)
    held = HeldBack(since=0.0, holder=None)
    monkeypatch.setattr(Following, "held_back", property(lambda _: held))
    await drill.pass_time(2 * int(SETTINGS.lost_seconds))
    assert shares((await drill.stored()).clusters) == placed
