"""Room that is kept for a set of components that waits, part by part where the set does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.model.placement import Certificate
from federation.model.workload import Component, ReplicaRequirements
from federation.scheduler.earmarks import CapacityClaim
from federation.scheduler.plugins.profile import DEFAULT_PROFILE
from federation.services.scheduling.earmarks import earmark_shadow
from lab.services import WEB
from tests.unit.services.scheduling.test_decide import NOW, attempt, decide
from tests.unit.services.scheduling.test_together import clusters

CORE = ReplicaRequirements(request={"cpu": 1000})
SET = replace(
    WEB,
    name="set",
    replicas=3,
    components=(
        Component(
            name="leader", replicas=1, requirements=ReplicaRequirements(request={"cpu": 2000})
        ),
        Component(name="worker", replicas=2, requirements=CORE),
    ),
)


@pytest.mark.parametrize(
    # A strict leader is sure of a node wherever the replica on its way lands; a careful promise
    # keeps back one for it, and so the workers alone have room.
    ("certificate", "free"),
    [(None, 1), (Certificate.STRICT, 0)],
)
async def test_parts_of_a_set_that_does_not_fit_keep_what_could_be_promised_to_them(
    certificate: Certificate | None, free: int
) -> None:
    working = clusters("a")
    decide(working, attempt("db", 1))
    other = attempt("other", 1).binding
    assert working.availability(other, None).replicas_c.tolist() == [3]
    claim = CapacityClaim(
        binding=replace(SET, certificate=certificate), profile=DEFAULT_PROFILE, lacking=3
    )
    assert working.availability(claim.binding, certificate).replicas_c.tolist() == [0]
    shadow = earmark_shadow(working, [claim], NOW)
    assert shadow.capacity.available_c(other, None).tolist() == [free]
