"""Recorded answers of Karmada's scheduler, as what the bridge writes under ``--as-karmada``.

Each line is a ResourceBinding and Clusters as Karmada stores them; compared is spec.clusters after
the main patch. Must not excuse a difference that no rule names.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from bridge.clusters import cluster_message
from bridge.karmada import KarmadaBinding, KarmadaCluster
from bridge.patches import SCHEDULED_TEXT, SUCCESS, BindingVerdict, main_patch
from bridge.requests import request_of
from federation.codec.bindings import binding_from_message
from federation.codec.clusters import cluster_state_from_message
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.simulation import Simulation, SimulationOptions
from tests.vectors.cases import simulate_case
from tests.vectors.loading import read_lines
from tests.vectors.test_cases import WIDER_SUMS
from tests.vectors.test_spread_locality import EXCUSED

# Whole cycles are compared one by one elsewhere: here every so manieth line goes through.
EVERY = 4


def stored_binding(line: dict[str, Any]) -> KarmadaBinding:
    spec = dict(simulate_case(line)["bindings"][0]["spec"])
    return KarmadaBinding(
        namespace="default", name="web", uid="uid", version="7", generation=2, spec=spec
    )


def decided(line: dict[str, Any], binding: KarmadaBinding) -> Decision:
    case, unknown = simulate_case(line), Counter[str]()
    states = [
        cluster_state_from_message(
            cluster_message(
                KarmadaCluster(
                    name=each["metadata"]["name"],
                    uid="uid",
                    version="1",
                    generation=1,
                    labels=each["metadata"]["labels"],
                    spec=each["spec"],
                ),
                unknown,
            ),
            0.0,
        )
        for each in case["clusters"]
    ]
    message = request_of(binding, scheduler="fedsched", as_karmada=True, unknown=unknown)
    options = SimulationOptions(available_replicas=case["options"]["availableReplicas"])
    assert not unknown
    return Simulation(states, options, now=0.0).decide(binding_from_message(message))


def written(binding: KarmadaBinding, decision: Decision) -> dict[str, int]:
    """spec.clusters as it is when the patch was applied."""
    targets = {each.name: each.replicas for each in decision.clusters}
    verdict = BindingVerdict(reason=SUCCESS, message=SCHEDULED_TEXT, targets=targets)
    patch = main_patch(binding, verdict)
    assert patch is not None
    if "spec" not in patch:
        return binding.targets
    return {each["name"]: each.get("replicas", 0) for each in patch["spec"]["clusters"] or ()}


@pytest.mark.parametrize("name", ["division", "spread-locality"])
def test_what_is_written_is_what_karmada_scheduler_wrote(name: str) -> None:
    compared = 0
    for line in read_lines(name)[::EVERY]:
        if line["id"] in WIDER_SUMS or line["id"] in EXCUSED:
            continue
        binding = stored_binding(line)
        decision = decided(line, binding)
        if "error" in line or "assignment" not in line:
            assert decision.outcome in (Outcome.UNSCHEDULABLE, Outcome.NO_FIT), line["id"]
            continue
        shares = {each: count for each, count in written(binding, decision).items() if count}
        if line.get("tie_sensitive"):
            assert sorted(shares.values()) == sorted(line["assignment"].values()), line["id"]
        else:
            assert shares == line["assignment"], line["id"]
        compared += 1
    assert compared > 90
