"""Karmada's recorded answers, asked again of the bridge as it runs under ``--as-karmada``.

Every line is a ResourceBinding and Clusters in Karmada's API, and compared is what stands in
``spec.clusters`` then. Must not excuse a difference that no rule names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from federation.client import Target
from federation.model.access import Role
from lab.control_planes import running_control_plane
from lab.karmadas import bridging, is_settled, scheduled_condition, targets_of
from lab.patience import until
from tests.karmada_api import KarmadaApi
from tests.vectors.karmada_objects import KarmadaObjects
from tests.vectors.loading import read_lines
from tests.vectors.test_cases import EXCUSED, WIDER_SUMS

# All lines are asked of the scheduler elsewhere: here every so manieth, as far as the clusters of
# its kind suffice for it. A cluster costs more than a binding.
EVERY, MOST_CLUSTERS = 4, 24
LOOK_SECONDS = 0.5


def is_decided(document: dict[str, Any]) -> bool:
    return is_settled(document) or scheduled_condition(document).get("status") == "False"


def differs(line: dict[str, Any], names: Mapping[str, str], document: dict[str, Any]) -> str:
    """What is otherwise than Karmada had it; "" where nothing is."""
    found, condition = targets_of(document), scheduled_condition(document)
    if line.get("assignment") is None:
        before = {names.get(each["name"], each["name"]): each["replicas"] for each in line["prior"]}
        if condition["status"] != "False":
            return f"Karmada placed it nowhere, and here it is in {found}"
        return "" if found in ({}, before) else f"it was in {before}, and is in {found} now"
    wanted = {names[name]: replicas for name, replicas in line["assignment"].items()}
    placed = {name: replicas for name, replicas in found.items() if replicas}
    if line.get("tie_sensitive") and sorted(placed.values()) == sorted(wanted.values()):
        return ""
    if placed == wanted and condition["status"] == "True":
        return ""
    return f"Karmada has it in {wanted}, here it is in {placed}: {condition}"


async def test_what_karmada_answered_is_what_the_bridge_writes(
    karmada_api: KarmadaApi, database_url: str, tmp_path: Path
) -> None:
    objects, lines = KarmadaObjects(most_clusters=MOST_CLUSTERS), {}
    for name in ("division", "spread-locality"):
        for line in read_lines(name)[::EVERY]:
            is_excused = line["id"] in WIDER_SUMS or line["id"] in EXCUSED
            if not is_excused and objects.add(line, name):
                lines[line["id"]] = line
    await asyncio.to_thread(karmada_api.create, *objects.clusters(), *objects.bindings)
    async with running_control_plane(database_url, tmp_path, allow_unproven="true") as plane:
        token = await plane.token(Role.BRIDGE)
        target = Target(endpoint=str(plane.plane.endpoint), token=token, plaintext=True)

        async def ask() -> dict[str, dict[str, Any]]:
            # Each answer is long, and others have work to do.
            await asyncio.sleep(LOOK_SECONDS)
            return await asyncio.to_thread(karmada_api.bindings)

        kubeconfig = karmada_api.kubeconfig(tmp_path / "karmada.config")
        async with bridging(kubeconfig, target, as_karmada=True):
            found = await until(ask, lambda every: all(map(is_decided, every.values())))
    assert found.keys() == lines.keys()
    assert len(lines) > 200
    differences = {
        name: told
        for name, line in lines.items()
        if (told := differs(line, objects.names[name], found[name]))
    }
    assert differences == {}
