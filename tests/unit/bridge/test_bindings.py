"""What a binding is asked about again, whenever that comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from bridge.bindings import BridgedBindings
from bridge.counts import Counts
from bridge.karmada import KarmadaBinding
from bridge.patches import SUCCESS, BindingVerdict
from lab.patience import PATIENCE_SECONDS
from tests.unit.bridge.bindings import stored

DUPLICATED = {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}


class ControlPlane:
    """Has no binding, and places what it is asked about in one cluster more each time."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.asked_again = asyncio.Event()

    async def watch_bindings(self) -> AsyncIterator[Any]:
        yield SimpleNamespace(relist=True, events=(), resource_version="1")
        await asyncio.Event().wait()

    async def ask(
        self, bindings: Sequence[KarmadaBinding], _deleting: frozenset[str]
    ) -> dict[str, tuple[BindingVerdict, str]]:
        if self.asked:
            self.asked_again.set()
        self.asked += [each.key for each in bindings]
        targets = {f"m{number}": 1 for number, _ in enumerate(self.asked)}
        verdict = BindingVerdict(reason=SUCCESS, message="", targets=targets)
        return {each.key: (verdict, f"decision-{len(self.asked)}") for each in bindings}


class Writes:
    """Each waits until it may end."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def write(
        self, binding: KarmadaBinding, verdict: BindingVerdict
    ) -> tuple[KarmadaBinding, BindingVerdict]:
        self.begun.set()
        await self.may_end.wait()
        clusters = [{"name": name, "replicas": 1} for name in verdict.targets or ()]
        return replace(binding, spec={**binding.spec, "clusters": clusters}), verdict


def test_who_goes_everywhere_is_asked_about_again_where_clusters_changed_while_it_was_written() -> (
    None
):
    asyncio.run(clusters_change_during_a_write())


async def clusters_change_during_a_write() -> None:
    plane, writes = ControlPlane(), Writes()
    either: Any = plane
    written: Any = writes
    bindings = BridgedBindings(either, written, either, Counts(), scheduler="fedsched")
    fleet: Any = SimpleNamespace(
        known={"m0", "m1"}, missing=(), deleting=set(), tell_ready=lambda *_: None
    )
    bindings.serve(fleet)
    web = stored(placement=DUPLICATED)
    bindings.replace([], namespaced=False)
    bindings.replace([web], namespaced=True)
    tasks = [asyncio.create_task(each) for each in (bindings.follow(), bindings.keep())]
    try:
        await asyncio.wait_for(writes.begun.wait(), PATIENCE_SECONDS)
        bindings.clusters_changed()
        writes.may_end.set()
        await asyncio.wait_for(plane.asked_again.wait(), PATIENCE_SECONDS)
        assert plane.asked == [web.key, web.key]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
