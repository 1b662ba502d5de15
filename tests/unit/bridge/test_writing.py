"""Patches of bindings that others change at the same time, on a fake API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.karmada import KarmadaBinding
from bridge.patches import SCHEDULED_TEXT, SUCCESS, BindingVerdict
from bridge.writing import KarmadaWrites, Overtaken
from estimator.kube.calls import KubeCalls
from lab.karmadas import FULLY_APPLIED, Karmada, binding, new_karmada_server
from lab.kubeapi.faults import First
from lab.kubeapi.resources import RESOURCE_BINDINGS, Document
from tests.unit.bridge.bindings import read

VERDICT = BindingVerdict(reason=SUCCESS, message=SCHEDULED_TEXT, targets={"m1": 4})


@pytest.fixture
def karmada() -> Iterator[Karmada]:
    with new_karmada_server() as server:
        made = Karmada(server)
        made.put(binding("web"))
        yield made


@pytest.fixture
def writes(karmada: Karmada, tmp_path: Path) -> Iterator[KarmadaWrites]:
    calls = KubeCalls(karmada.server.kubeconfig(tmp_path / "config"), threads=1)
    yield KarmadaWrites(calls, calls, "fedsched", lambda: 1_800_000_000.0)
    calls.close()


def known(karmada: Karmada) -> KarmadaBinding:
    return read(karmada.binding("web"))


def meanwhile(karmada: Karmada, part: str, patch: Document) -> None:
    """Just before the next patch arrives, somebody else's does."""
    writer = karmada.server.writer
    act = First(act=lambda: writer.patch(RESOURCE_BINDINGS, "default", "web", patch, part=part))
    karmada.server.faults.add(act, times=1, verb="patch")


async def test_a_condition_that_somebody_adds_meanwhile_is_not_undone(
    karmada: Karmada, writes: KarmadaWrites
) -> None:
    before = known(karmada)
    meanwhile(karmada, "status", {"status": {"conditions": [FULLY_APPLIED]}})
    written, told = await writes.write(before, VERDICT)
    assert told == VERDICT
    kinds = {each["type"] for each in karmada.binding("web")["status"]["conditions"]}
    assert kinds == {"FullyApplied", "Scheduled"}
    assert karmada.targets("web") == {"m1": 4}
    assert karmada.is_settled("web")
    assert written.version == karmada.binding("web")["metadata"]["resourceVersion"]


async def test_an_eviction_that_comes_first_is_not_undone(
    karmada: Karmada, writes: KarmadaWrites
) -> None:
    """It is another generation: what was decided is not for that, and it is decided anew."""
    karmada.edit("web", clusters=[{"name": "m1", "replicas": 4}])
    before = known(karmada)
    task = {"fromCluster": "m1", "producer": "TaintManager", "reason": "TaintUntolerated"}
    meanwhile(karmada, "", {"spec": {"clusters": None, "gracefulEvictionTasks": [task]}})
    with pytest.raises(Overtaken):
        await writes.write(before, VERDICT)
    assert karmada.targets("web") == {}
    assert "conditions" not in karmada.binding("web").get("status", {})
