"""Failover over the wire: frozen and resumed, as a whole and in places."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from lab.control_planes import Plane, refused

pytestmark = pytest.mark.expected_errors("failover is frozen")

WHY = "network change"
PLACES = pytest.mark.parametrize("place", [{}, {"region": "eu-west"}])


async def status_after(api: Plane, method: str, **fields: Any) -> Any:
    status = (await api.ask(method, **fields)).status
    assert status.HasField("time")
    status.ClearField("time")
    return status


async def in_region(api: Plane, region: str) -> None:
    await api.enrolled("member1")
    cluster = {"metadata": {"name": "member1"}, "spec": {"region": region}}
    await api.ask("UpdateCluster", cluster=cluster)


@PLACES
async def test_what_is_frozen_is_not_frozen_again_and_goes_on_once(
    api: Plane, place: dict[str, str]
) -> None:
    await in_region(api, "eu-west")
    named = "Failover of region eu-west" if place else "Failover"
    frozen = await status_after(api, "FreezeFailover", reason=WHY, **place)
    freeze = frozen.places[0].freeze if place else frozen.freeze
    assert freeze.reason == WHY
    refusal = await refused(api.ask("FreezeFailover", reason="again", **place))
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    assert refusal.reason == "ALREADY_FROZEN"
    assert refusal.message == f"{named} is frozen already, by “{freeze.by}”: “{WHY}”"
    assert await status_after(api, "GetFailover") == frozen
    resumed = await status_after(api, "ResumeFailover", **place)
    assert (resumed.HasField("freeze"), list(resumed.places)) == (False, [])
    refusal = await refused(api.ask("ResumeFailover", **place))
    assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
    assert (refusal.reason, refusal.message) == ("NOT_FROZEN", f"{named} is not frozen.")


@PLACES
async def test_a_silent_cluster_says_that_failover_of_it_is_frozen(
    api: Plane, place: dict[str, str]
) -> None:
    await in_region(api, "eu-west")
    await api.enrolled("elsewhere")

    async def frozen() -> dict[str, Any]:
        """The condition of each cluster that has it."""
        clusters = (await api.ask("ListClusters")).clusters
        one = (await api.ask("GetCluster", name="member1")).cluster
        assert one.status.conditions == clusters[1].status.conditions
        return {
            each.metadata.name: condition
            for each in clusters
            for condition in each.status.conditions
            if condition.type == "FailoverFrozen"
        }

    assert not await frozen()
    status = await status_after(api, "FreezeFailover", reason=WHY, **place)
    freeze = status.places[0].freeze if place else status.freeze
    conditions = await frozen()
    assert conditions.keys() == {"member1"} | (set() if place else {"elsewhere"})
    condition = conditions["member1"]
    assert (condition.status, condition.reason) == ("True", "FrozenByPeople")
    assert condition.message.endswith(f"failover is frozen by “{freeze.by}”: “{WHY}”")
    await status_after(api, "ResumeFailover", **place)
    assert not await frozen()
