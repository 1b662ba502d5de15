"""Attempts that are decided together: what the first one takes counts for the next, and ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.model.namespace_quotas import REPLICAS, NamespaceQuota
from federation.model.placement import Placement, ReplicaScheduling, SchedulingType
from federation.services.scheduling.attempt import Attempt, AttemptRole, QuotaRoom
from federation.services.scheduling.deciding import AttemptBatch
from federation.services.scheduling.together import decide_all, seen_together
from federation.services.scheduling.working_copy import WorkingCopy
from lab.services import fleet_of
from tests.unit.services.scheduling.test_decide import NOW, attempt, pooled, ready_fleet

APART = Placement(
    replica_scheduling=ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True),
    workload_anti_affinity_key="app",
)


def apart(name: str) -> Attempt:
    """One core that goes where no other of its kind is."""
    core = attempt(name, 1).binding
    return Attempt(binding=replace(core, labels={"app": "x"}, placement=APART))


def clusters(*names: str) -> WorkingCopy:
    fleet = fleet_of(**{name: pooled(2, 2000) for name in names})
    for name in names:
        fleet.put_presence(name, replace(fleet.view(name).presence, silent_after=NOW + 1))
    return WorkingCopy(fleet.snapshot)


@pytest.mark.parametrize(("names", "room"), [("a", 0), ("ab", 1)])
async def test_a_gang_whose_members_stay_apart_sees_room_in_as_many_clusters(
    names: str, room: int
) -> None:
    seen = seen_together(clusters(*names), [apart("one"), apart("two")], NOW)
    assert seen.room == {"": room}


async def test_what_is_undone_is_given_back_to_the_quota() -> None:
    web = attempt("web", 4)
    quota = NamespaceQuota(namespace=web.binding.namespace, limits={REPLICAS: 5})
    web.facts.quota = QuotaRoom(quota=quota, read={REPLICAS: 1}, used={})
    batch = AttemptBatch(working=ready_fleet(), attempts=[web], now=NOW)
    assert batch.decide(0, {})
    assert web.facts.quota.used[REPLICAS] == 5
    batch.undo()
    assert web.facts.quota.used == {REPLICAS: 1}


async def test_who_joins_no_gang_is_not_left_waiting_as_one() -> None:
    """Else what was taken for it would not be given back."""
    web = attempt("web", 99)
    web.role = AttemptRole.JOINING
    with pytest.raises(LookupError, match="joins no gang"):
        decide_all(ready_fleet(), [web], NOW)
