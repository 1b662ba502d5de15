"""Plugins that keep something for decisions and hear of them: what is kept is what is committed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest

from federation.scheduler.plugins.profile import DEFAULT_PROFILE, PostBind, Profiles, Reserve
from federation.scheduler.state import CycleState
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, OUTCOME_UNSCHEDULABLE
from lab.patience import until
from tests.api.calls import EQUAL
from tests.api.world import World, code_of, shares

CORES = {"a": 6, "b": 3, "c": 3}


@dataclass
class Licences:
    """So many replicas may run in all. Keeps them, gives them back, and hears of them."""

    free: int = 5
    heard: list[tuple[str, int]] = field(default_factory=list)

    def keep(self, state: CycleState, replicas_c: Any) -> str:
        if state.binding.name == "fails":
            raise KeyError("no such licence")
        wanted = int(replicas_c.sum() - state.prior_c.sum())
        if wanted > self.free:
            return f"{self.free} licences are left, {wanted} wanted"
        self.free -= wanted
        return ""

    def give_back(self, state: CycleState, replicas_c: Any) -> None:
        self.free += int(replicas_c.sum() - state.prior_c.sum())

    def hear(self, state: CycleState, replicas_c: Any) -> None:
        self.heard.append((state.binding.name, int(replicas_c.sum())))
        if state.binding.name == "odd":
            raise ValueError("odd")


LICENCES = Licences()


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    reserve = Reserve(name="Licences", run=LICENCES.keep, undo=LICENCES.give_back)
    hear = PostBind(name="Ears", run=LICENCES.hear)
    licensed = replace(DEFAULT_PROFILE, reserves=(reserve,), post_binds=(hear,))
    return Profiles.of([licensed, replace(DEFAULT_PROFILE, name="others")])


@pytest.fixture
def licences() -> Licences:
    LICENCES.free = 5
    LICENCES.heard.clear()
    return LICENCES


async def heard(world: World, licences: Licences, *expected: tuple[str, int]) -> None:
    """Plugins hear in a thread of their own, after the answer."""

    async def told() -> list[tuple[str, int]]:
        await world.queued()
        return licences.heard

    await until(told, lambda found: found == list(expected))


async def test_what_is_kept_is_what_is_placed(world: World, licences: Licences) -> None:
    await world.clusters(**CORES)
    assert await world.placed("w1", 3, "a") == {"a": 3}
    assert licences.free == 2
    refusal = await world.schedule("w2", 3, only=["a"])
    decision = refusal.decision
    assert (decision.outcome, decision.remainder) == (OUTCOME_UNSCHEDULABLE, 3)
    assert decision.reason == "Licences: “2 licences are left, 3 wanted”"
    assert refusal.queued
    await world.delete("w2")
    # Its room is not taken: nothing is missing for the next one.
    assert await world.placed("w3", 3, "a", scheduler_name="others") == {"a": 3}
    # The same again keeps nothing more; fewer give back.
    for replicas, free in ((3, 2), (1, 4)):
        await world.schedule("w1", replicas, only=["a"])
        assert licences.free == free
    await heard(world, licences, ("w1", 3), ("w1", 1))


async def test_what_comes_to_nothing_gives_back(
    world: World, rival: World, licences: Licences
) -> None:
    await world.clusters(**CORES)
    # Static weights find out that there is no room when they are packed.
    placement = {"replica_scheduling": EQUAL}
    answer = await world.schedule("w1", 4, only=["b"], placement=placement, wait=False)
    assert "no room" in answer.decision.reason
    assert licences.free == 5
    # A spoilt atomic batch.
    items = [world.workload(f"w{name}", 3, only=[name]) for name in "ab"]
    await world.batch(*items, atomic=True)
    assert licences.free == 5
    # A commit that fails.
    world.store.fail_at("decisions.add_all")
    assert await code_of(world.schedule("away", 2, only=["a"])) is grpc.StatusCode.UNAVAILABLE
    assert licences.free == 5
    # What others took meanwhile, for whom no licence is needed.
    await rival.plane.follow()
    others = {"scheduler_name": "others"}
    rival.store.before("journal.lock", lambda: world.schedule("r1", 2, only=["b"], **others))
    assert await rival.placed("w1", 2, "b", wait=False) == {}
    assert licences.free == 5
    rival.store.before("journal.lock", lambda: world.schedule("r2", 2, only=["a"], **others))
    assert await rival.placed("w2", 2, "a") == {"a": 2}
    assert licences.free == 3
    licences.free = 6
    results = await world.batch(
        *(world.workload(f"x{name}", 1, only=[name]) for name in "bc"), atomic=True
    )
    assert [shares(each.decision) for each in results] == [{"b": 1}, {"c": 1}]
    assert licences.free == 4


async def test_one_that_raises_fails_its_own_binding(
    world: World, licences: Licences, caplog: pytest.LogCaptureFixture
) -> None:
    """And one that raises when it hears of what is committed changes nothing of it any more."""
    await world.clusters(**CORES)
    names = ("w0", "fails", "odd", "w3")
    results = await world.batch(*(world.workload(name, only=["a"]) for name in names))
    assert [each.error_reason for each in results] == ["", "PLUGIN_FAILED", "", ""]
    assert "Licences failed: it raised KeyError" in results[1].decision.reason
    assert [shares(each.decision) for each in results] == [{"a": 1}, {}, {"a": 1}, {"a": 1}]
    assert licences.free == 2
    await heard(world, licences, ("w0", 1), ("odd", 1), ("w3", 1))

    async def told() -> str:
        await world.queued()
        return caplog.text

    await until(told, lambda text: "ValueError" in text)


async def test_a_preview_keeps_nothing_and_is_not_committed_as_shown(
    world: World, licences: Licences
) -> None:
    await world.clusters(**CORES)
    for replicas, outcome in ((9, OUTCOME_UNSCHEDULABLE), (6, OUTCOME_SCHEDULED)):
        shown = await world.schedule("w1", replicas, only=["a"], preview=True)
        assert shown.decision.outcome == outcome
    assert not shown.preview_token
    assert (licences.free, licences.heard) == (5, [])
