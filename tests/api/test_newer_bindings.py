"""Bindings that a newer release wrote with a key that this one does not know."""

from __future__ import annotations

import grpc

from federation.v1.scheduling_pb2 import OUTCOME_INVALID, OUTCOME_SCHEDULED
from lab.control_planes import Plane, refused, report
from tests.api.calls import binding, got, scheduled

ADD_KEY = """
    UPDATE binding SET spec = jsonb_set(spec, '{placement,colour}', '"red"'), version = version + 1
    WHERE name = $1
"""
REMOVE_KEY = "UPDATE binding SET spec = spec #- '{placement,colour}' WHERE name = $1"
MESSAGE = "binding 'shop/newer' with the key 'placement.colour'"


async def test_calls_about_the_binding_are_refused_by_name_and_others_are_answered(
    api: Plane,
) -> None:
    async with api.connected("member1", report=report(nodes=4)):
        for name in ("newer", "web"):
            answer = await scheduled(api, binding(name, replicas=1))
            assert answer.decision.outcome == OUTCOME_SCHEDULED
        await api.sql(ADD_KEY, "newer")

        items = [{"binding": binding(name, replicas=2)} for name in ("newer", "web", "new")]
        results = (await api.ask("ScheduleBatch", items=items)).results
        assert [result.decision.outcome for result in results] == [
            OUTCOME_INVALID,
            OUTCOME_SCHEDULED,
            OUTCOME_SCHEDULED,
        ]
        assert results[0].error_reason == "SCHEMA_AHEAD"
        assert MESSAGE in results[0].decision.reason

        for call in (
            scheduled(api, binding("newer", replicas=2)),
            got(api, "newer"),
            api.ask("ListBindings", namespace="shop"),
        ):
            refusal = await refused(call)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "SCHEMA_AHEAD")
            assert MESSAGE in refusal.message
        assert (await got(api, "web")).binding.spec.replicas == 2
        # The control plane can be emptied again.
        await api.sql(REMOVE_KEY, "newer")
