"""The shadow in a large fleet: every placed binding is compared, in calls that are small enough."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from bridge.agreement import Cause, Occasion
from bridge.karmada import (
    KarmadaBinding,
    KarmadaCluster,
    RawBinding,
    RawCluster,
    binding_from_raw,
    cluster_from_raw,
)
from bridge.shadow import Shadow
from federation.client import Client, Target
from federation.model.access import Role
from lab.control_planes import running_control_plane
from lab.karmadas import PLACEMENT, member, placed

CLUSTERS = 1_000
BINDINGS = 45


def large_cluster(number: int) -> KarmadaCluster:
    """One that serves two hundred kinds, as clusters with operators do."""
    document = member(f"m{number:04}")
    served = document["status"]["apiEnablements"]
    served += [
        {
            "groupVersion": f"group{group}.operators.example/v1",
            "resources": [{"name": f"things{kind}", "kind": f"Thing{kind}"} for kind in range(20)],
        }
        for group in range(10)
    ]
    return cluster_from_raw(msgspec.convert(document, RawCluster))


def placed_binding(number: int) -> KarmadaBinding:
    document: dict[str, Any] = placed(f"web-{number}", m0001=3, m0002=1)
    document["spec"].update(schedulerName="default-scheduler", placement=PLACEMENT)
    return binding_from_raw(msgspec.convert(document, RawBinding))


async def test_every_placed_binding_of_a_large_fleet_is_compared(
    database_url: str, tmp_path: Path
) -> None:
    async with running_control_plane(database_url, tmp_path) as plane:
        token = await plane.token(Role.VIEWER)
        target = Target(
            endpoint=str(plane.plane.endpoint), token=token, plaintext=True, timeout_seconds=600
        )
        async with Client(target) as client:
            shadow = Shadow(client, scheduler="default-scheduler", as_karmada=False)
            shadow.replace_clusters(large_cluster(number) for number in range(CLUSTERS))
            shadow.replace_bindings((placed_binding(n) for n in range(BINDINGS)), "bindings")
            await shadow.compare_standing()
    assert shadow.agreement.counts == Counter({(Occasion.STANDING, Cause.SAME): BINDINGS})
