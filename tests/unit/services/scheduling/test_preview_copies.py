"""Preview copies: who asks after others is told what nobody having asked before would be told."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from federation.model.placement import Binding
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling import preview_copies
from federation.services.scheduling.preview_copies import PreviewCopies
from federation.services.scheduling.working_copy import WorkingCopy
from tests.unit.services.scheduling.test_working_copy import (
    CORES,
    commit,
    fits,
    fleet_of,
    pooled,
    taken,
)

NAMES = ("a", "b", "c", "d")
HALF = ReplicaRequirements(request={"cpu": 500})


@pytest.fixture
def fleet() -> FleetOwner:
    """Where `web` holds something in most clusters, and in one no longer has room for it."""
    owner = fleet_of(a=pooled(3, 2000), b=pooled(2, 3000), c=pooled(4, 1000), d=pooled(1, 9000))
    commit(owner, taken(WorkingCopy(owner.snapshot), CORES, {"a": 4, "b": 3, "d": 2}))
    other = replace(CORES, name="other", requirements=HALF)
    commit(owner, taken(WorkingCopy(owner.snapshot), other, {"a": 2, "b": 4, "c": 3}), other)
    owner.put_report("b", replace(pooled(2, 2000), sequence=2), 2.0)
    return owner


def asked(choices: random.Random) -> Iterator[tuple[Binding, dict[str, int]]]:
    """Previews of a workload that runs, of new ones and of other placements of both."""
    for _ in range(60):
        requirements = choices.choice((CORES.requirements, HALF))
        clusters = tuple(TargetCluster(name=name, replicas=choices.randint(1, 4)) for name in "abd")
        name = choices.choice(("web", "new"))
        binding = replace(
            CORES,
            name=name,
            requirements=replace(requirements),
            clusters=clusters if name == "web" else (),
        )
        yield binding, {each: choices.randint(0, 4) for each in choices.sample(NAMES, 3)}


def answers(working: WorkingCopy, binding: Binding, shares: dict[str, int]) -> tuple[object, ...]:
    """What is available to it, whether it finds room, and what is available after that."""
    available = working.availability(binding, None)
    columns = available.replicas_c, available.source_c, available.bound_c
    before = [column.tolist() for column in columns], dict(available.reasons)
    kept = taken(working, binding, shares, held=[each.name for each in binding.clusters])
    return before, kept, fits(working, replace(CORES, name="another"))


async def test_every_preview_is_told_what_a_fresh_copy_tells(fleet: FleetOwner) -> None:
    copies, choices = PreviewCopies(fleet, allow_unproven=False), random.Random(1)
    for number, (binding, shares) in enumerate(asked(choices)):
        if number % 15 == 14:
            fleet.put_report("c", replace(pooled(4, 1000 + number), sequence=number), 3.0 + number)
        fresh = WorkingCopy(fleet.snapshot, fleet.known_estimates)
        assert answers(copies.next(), binding, shares) == answers(fresh, binding, shares)


async def test_what_was_found_out_is_kept_for_a_while_only(
    fleet: FleetOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview_copies, "_KEEP_SECONDS", 0.0)
    web = replace(CORES, clusters=(TargetCluster(name="a", replicas=4),))
    copies = PreviewCopies(fleet, allow_unproven=False)
    first = copies.next().availability(web, None)
    assert copies.next().availability(web, None) is first
    loop, forgotten = asyncio.get_running_loop(), asyncio.Event()
    loop.call_later(0.0, forgotten.set)
    await forgotten.wait()
    again = copies.next().availability(web, None)
    assert again is not first
    assert np.array_equal(again.replicas_c, first.replicas_c)


async def test_not_everything_is_kept_of_a_fleet_that_does_not_change(
    fleet: FleetOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview_copies, "_MOST_PREVIEWS", 2)
    copies = PreviewCopies(fleet, allow_unproven=False)
    one, two, three = (copies.next().availability(CORES, None) for _ in range(3))
    assert one is two
    assert three is not one
