"""The shadow: each decision of karmada-scheduler is compared, in calls that are small enough."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from federation.bridge import shadow
from federation.bridge.agreement import Agreement, Cause, Occasion
from federation.bridge.app import BridgeSettings, compare
from federation.model.access import Role
from lab.karmadas import PLACEMENT, member, placed, until
from lab.kubeapi.resources import Document
from tests.bridge.worlds import World

CLUSTERS = 1_000
BINDINGS = 45


async def settings_of(world: World) -> BridgeSettings:
    return BridgeSettings(
        target=await world.target(Role.VIEWER, timeout_seconds=600),
        kubeconfig=world.kubeconfig(world.folder),
        scheduler_name="default-scheduler",
        as_karmada=False,
    )


def large_cluster(number: int) -> Document:
    """One that serves two hundred kinds, as clusters with operators do."""
    document = member(f"m{number:04}")
    served = document["status"]["apiEnablements"]
    if number == 2:
        served.clear()
    served += [
        {
            "groupVersion": f"group{group}.operators.example/v1",
            "resources": [{"name": f"things{kind}", "kind": f"Thing{kind}"} for kind in range(20)],
        }
        for group in range(10)
    ]
    return document


def theirs(name: str, **shares: int) -> Document:
    document: dict[str, Any] = placed(name, **shares)
    document["spec"].update(schedulerName="default-scheduler", placement=PLACEMENT)
    return document


async def test_every_placed_binding_of_a_large_fleet_is_compared(world: World) -> None:
    world.put(*map(large_cluster, range(CLUSTERS)))
    # What serves other kinds alone gets no share of what it would not run.
    anew = theirs("anew", m0001=1)
    anew["spec"]["placement"] = {**PLACEMENT, "clusterAffinity": {"clusterNames": ["m0002"]}}
    world.put(*(theirs(f"web-{number}", m0001=3, m0002=1) for number in range(BINDINGS)), anew)
    agreement = await compare(await settings_of(world), asyncio.Event(), 0.0)
    assert agreement.counts[Occasion.STANDING, Cause.SAME] == BINDINGS
    assert agreement.counts.total() == BINDINGS + 1
    assert (Occasion.STANDING, Cause.NOT_PLACED) in agreement.counts


async def test_what_is_decided_before_what_stands_is_compared_is_compared_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put(member("m1"), member("m2"), theirs("before", m1=4))
    stopping = asyncio.Event()
    compare_standing, put_binding = shadow.Shadow.compare_standing, shadow.Shadow.put_binding
    seen = set[str]()

    async def compare_later(self: Any) -> None:
        world.put(theirs("meanwhile", m1=4))
        await until(lambda: len(seen) == 2)
        await compare_standing(self)

    def put_and_note(self: Any, binding: Any) -> None:
        put_binding(self, binding)
        seen.add(binding.key)

    monkeypatch.setattr(shadow.Shadow, "compare_standing", compare_later)
    monkeypatch.setattr(shadow.Shadow, "put_binding", put_and_note)
    made = Agreement()
    monkeypatch.setattr(shadow, "Agreement", lambda: made)
    settings = await settings_of(world)
    comparing = asyncio.create_task(compare(settings, stopping, 600.0))
    await until(lambda: made.counts.total() >= 2)
    stopping.set()
    await comparing
    assert Counter(occasion for occasion, _ in made.counts.elements()) == {
        Occasion.STANDING: 1,
        Occasion.DECIDED: 1,
    }


async def test_few_decisions_wait_to_be_compared_and_others_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "MAX_WAITING", 2)
    world.put(member("m1"), member("m2"))
    stopping, may_go_on = asyncio.Event(), asyncio.Event()
    simulate = shadow.Client.simulate
    simulated, seen = Counter[str](), Counter[str]()
    put_binding = shadow.Shadow.put_binding

    async def slowly(client: Any, *arguments: Any, **options: Any) -> Any:
        simulated["calls"] += 1
        await may_go_on.wait()
        return await simulate(client, *arguments, **options)

    def put_and_count(self: Any, binding: Any) -> None:
        put_binding(self, binding)
        seen["bindings"] += 1

    monkeypatch.setattr(shadow.Client, "simulate", slowly)
    monkeypatch.setattr(shadow.Shadow, "put_binding", put_and_count)
    settings = await settings_of(world)
    comparing: asyncio.Task[Agreement] = asyncio.create_task(compare(settings, stopping, 600.0))
    try:
        await asyncio.to_thread(world.server.wait_for_watches, "resourcebindings")
        world.put(theirs("first", m1=4))
        await until(lambda: simulated["calls"] == 1)
        world.put(*(theirs(f"next-{number}", m1=4) for number in range(5)))
        await until(lambda: seen["bindings"] == 6)
        may_go_on.set()
        # Ours is another one, and two of Karmada's ways are tried beside it.
        await until(lambda: simulated["calls"] >= 7)
    finally:
        may_go_on.set()
        stopping.set()
        agreement = await comparing
    assert agreement.passed_over == 3
