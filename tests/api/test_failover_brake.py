"""The brake of failover: many fall silent at once, or people freeze it, as a whole and in places.

Places freeze by themselves here: the control plane is told to.
"""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from federation.services.fleet import held_back
from lab.control_planes import refused
from tests.api.drill import FLAGS, LONGEST_TURN, LOST_SECONDS, STALE_SECONDS, Drill

pytestmark = pytest.mark.expected_errors("failover is frozen")


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    return {**FLAGS, "breaker_by_place": "true"}


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(drill: Drill) -> Drill:
    """Clusters of 6, 3 and 4 free cores, and a workload in the first."""
    await drill.clusters(a=6, b=3, c=4)
    await drill.run_in("a", web=3)
    return drill


async def freeze_of(drill: Drill) -> str:
    """Who froze it, and why."""
    status = await drill.status()
    return f"{status.freeze.by}: {status.freeze.reason}" if status.HasField("freeze") else ""


async def places(drill: Drill) -> dict[str, str]:
    """Why regions are frozen."""
    return {each.region: each.freeze.reason for each in (await drill.status()).places}


def told(caplog: pytest.LogCaptureFixture, words: str) -> list[dict[str, Any]]:
    """Fields of the lines that have these words."""
    return [vars(each)["fields"] for each in caplog.records if words in each.getMessage()]


@pytest.mark.parametrize("cause", ["nothing", "the database"])
async def test_many_at_once_freeze_all_within_ten_seconds_and_nothing_moves(
    fleet: Drill, caplog: pytest.LogCaptureFixture, cause: str
) -> None:
    if cause == "the database":
        fleet.silent |= {"a", "b"}
        await fleet.pass_time(STALE_SECONDS - 25, 13)
        fleet.store.is_reachable = False
        await fleet.pass_time(20, 4)
        fleet.store.is_reachable = True

    async def stale() -> int:
        listed = (await fleet.plane.ask("ListClusters")).clusters
        return sum(each.status.conditions[0].status == "Unknown" for each in listed)

    fleet.silent |= {"a", "b"}
    await fleet.pass_until(stale, lambda count: count == 2)
    await fleet.pass_time(8)
    named = "the database could not be read until then" if cause == "the database" else "in common"
    freeze = await freeze_of(fleet)
    assert freeze.startswith("breaker: 2 of 3 clusters fell silent within a minute: a, b. ")
    assert named in freeze
    (fields,) = told(caplog, "failover is frozen: nothing moves")
    assert fields["by"] == "breaker"
    await fleet.pass_time(LOST_SECONDS, 4)
    assert (await fleet.lost(), await fleet.shares(), await fleet.evicted()) == (
        set(),
        {"a": 3},
        {},
    )
    # People may stand by it: then it does not go on by itself.
    await fleet.plane.ask("FreezeFailover", reason="we look into it")
    fleet.silent = frozenset()
    await fleet.pass_time(4)
    assert await freeze_of(fleet) == "admin: we look into it"
    await fleet.plane.ask("ResumeFailover")
    await fleet.pass_time(4)
    assert (await fleet.shares(), await freeze_of(fleet)) == ({"a": 3}, "")


async def test_nothing_is_lost_or_moved_while_the_changes_of_others_are_not_seen(
    drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence begins anew then, also that of clusters that fell silent before."""
    monkeypatch.setattr(held_back, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(held_back, "HELD_SECONDS", 0.0)
    await drill.clusters(a=6, b=1, c=1, d=1)
    await drill.run_in("a", web=4)
    await drill.lose("a")
    await drill.fall_silent("b")
    async with drill.unread_journal():
        await drill.plane.follow()
        await drill.see("d", 9)
        # It has noticed that there is something which it cannot read.
        await drill.plane.follow()
        drill.silent |= {"c"}
        await drill.pass_time(2 * LOST_SECONDS, LONGEST_TURN)
        assert (await drill.lost(), await drill.shares()) == ({"a"}, {"a": 4})
        assert "c" not in {each.name for each in (await drill.status()).silent}
    drill.silent -= {"c"}
    await drill.plane.follow()
    await drill.pass_time(LOST_SECONDS / 2, LONGEST_TURN)
    assert "b" not in await drill.lost()
    await drill.lose("a", "b")
    await drill.until_moved("web", d=4)


async def test_it_goes_on_by_itself_once_they_are_heard(fleet: Drill) -> None:
    await fleet.fall_silent("a", "b")
    await fleet.pass_until(lambda: freeze_of(fleet), bool)
    fleet.silent = frozenset()
    await fleet.pass_until(lambda: freeze_of(fleet), lambda freeze: not freeze)
    assert await fleet.shares() == {"a": 3}


async def test_silence_that_people_accept_is_loss_when_its_time_is_over(fleet: Drill) -> None:
    await fleet.fall_silent("a", "b")
    await fleet.pass_until(lambda: freeze_of(fleet), bool)
    await fleet.plane.ask("ResumeFailover")
    await fleet.lose("a", "b")
    await fleet.until_moved("web", c=3)


async def test_a_region_freezes_alone_until_it_is_heard_or_people_say_otherwise(
    drill: Drill, caplog: pytest.LogCaptureFixture
) -> None:
    await drill.clusters(a=6, b=3, c=3, d=3)
    await drill.run_in("a", web=3)
    for name in ("a", "b"):
        await drill.change(name, region="south")
    await drill.fall_silent("a", "b")
    found = await drill.pass_until(lambda: places(drill), bool)
    assert found.keys() == {"south"}
    assert found["south"].startswith("2 of 2 clusters of region south fell silent")
    await drill.pass_time(LOST_SECONDS, 4)
    assert (await drill.lost(), await drill.shares()) == (set(), {"a": 3})
    drill.silent = frozenset()
    await drill.pass_until(lambda: places(drill), lambda found: not found)
    # Once more, and now people let it be moved.
    await drill.fall_silent("a", "b")
    await drill.pass_until(lambda: places(drill), bool)
    await drill.plane.ask("ResumeFailover", region="south")
    await drill.lose("a", "b")
    await drill.pass_until(drill.evicted, lambda found: found == {"a": 3})
    frozen, thawed = (
        told(caplog, f"failover {word} in one place") for word in ("is frozen", "goes on")
    )
    assert [each["where"] for each in frozen] == ["region south"] * 2
    assert [each["by"] for each in thawed] == ["itself", "admin"]


async def test_nothing_moves_off_a_place_that_people_have_frozen(fleet: Drill) -> None:
    await fleet.change("a", region="south")
    await fleet.change("b", region="north")
    await fleet.schedule("at-b", 1, only=["b"])
    await fleet.schedule("at-b", 1)
    await fleet.plane.ask("FreezeFailover", reason="we look into it", region="south")
    assert await places(fleet) == {"south": "we look into it"}
    for place, field in (
        ({"region": "south", "provider": "aws"}, "provider"),
        ({"region": "nowhere"}, "region"),
        ({"provider": "south"}, "provider"),
        ({"provider": "\x1b[1m"}, "provider"),
    ):
        refusal = await refused(fleet.plane.ask("FreezeFailover", reason="why", **place))
        assert (refusal.code.name, [*refusal.violations]) == ("INVALID_ARGUMENT", [field])
    await fleet.fall_silent("a")
    await fleet.pass_time(LOST_SECONDS, 4)
    assert (await fleet.lost(), await fleet.shares()) == (set(), {"a": 3})
    # Another one goes on, and people may freeze all and let it go on beside that.
    await fleet.plane.ask("FreezeFailover", reason="a moment")
    await fleet.plane.ask("ResumeFailover")
    await fleet.lose("b")
    await fleet.until_moved("at-b", c=1)
    assert (await fleet.lost(), await fleet.shares()) == ({"b"}, {"a": 3})
    await fleet.plane.ask("ResumeFailover", region="south")
    await fleet.lose("a")
    await fleet.until_evicted("web", a=3)
