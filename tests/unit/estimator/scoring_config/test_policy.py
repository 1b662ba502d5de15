"""The legacy Policy, in the forms Kubernetes' pages print it."""

from __future__ import annotations

import pytest

from estimator.binpack.fit_strategies.requested_to_capacity_ratio import RequestedToCapacityRatio
from estimator.binpack.strategy import ResourceWeight, ShapePoint
from estimator.scoring_config.documents import InvalidConfiguration
from estimator.scoring_config.policy import read_policy

JSON = """
{
	"kind": "Policy",
	"apiVersion": "v1",
	"priorities": [
		{
			"name": "RequestedToCapacityRatioPriority",
			"weight": 2,
			"argument": {
				"requestedToCapacityRatioArguments": {
					"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
					"resources": [
						{"name": "intel.com/foo", "weight": 3},
						{"name": "CPU"},
						{"name": "Memory", "weight": 5}
					]
				}
			}
		}
	]
}
"""

YAML = """
apiVersion: v1
kind: Policy
priorities:
- name: RequestedToCapacityRatioPriority
  weight: 2
  argument:
    requestedToCapacityRatioArgs:
      shape: [{score: 0}, {utilization: 100, score: 10}]
      resources: [{name: intel.com/foo, weight: 3}, {name: cpu}, {name: memory, weight: 5}]
"""


@pytest.mark.parametrize("text", [JSON, YAML])
def test_both_spellings_are_the_same_profile(text: str) -> None:
    profile = read_policy(text).profile
    assert profile.scheduler_name == "default-scheduler"
    (plugin,) = profile.plugins
    assert plugin.weight == 2
    assert plugin.strategy == RequestedToCapacityRatio(
        weights=(
            ResourceWeight(resource="intel.com/foo", weight=3),
            ResourceWeight(resource="cpu", weight=1),
            ResourceWeight(resource="memory", weight=5),
        ),
        shape=(
            ShapePoint(utilization=0, score=0),
            ShapePoint(utilization=100, score=10),
        ),
    )


def test_a_translation_is_never_silent() -> None:
    assert any("1.23" in warning for warning in read_policy(YAML).warnings)
    capitals = [warning for warning in read_policy(JSON).warnings if ".name " in warning]
    path = "priorities[0].argument.requestedToCapacityRatioArguments.resources"
    assert capitals == [
        f"{path}[1].name CPU is read as cpu",
        f"{path}[2].name Memory is read as memory",
    ]


def test_built_in_priorities_become_plugins_and_the_rest_is_warned_about() -> None:
    translated = read_policy(
        "kind: Policy\n"
        "predicates: [{name: PodFitsResources}]\n"
        "extenders: [{urlPrefix: 'http://a', enableHttps: false, httpTimeout: 1}]\n"
        "priorities:\n"
        "- {name: LeastRequestedPriority, weight: 1}\n"
        "- {name: MostRequestedPriority, weight: 2}\n"
        "- {name: BalancedResourceAllocation, weight: 3}\n"
        "- {name: RequestedToCapacityRatioPriority, weight: 4}\n"
        "- {name: ImageLocalityPriority, weight: 5}\n"
    )
    assert [(item.strategy.name, item.weight) for item in translated.profile.plugins] == [
        ("LeastAllocated", 1),
        ("MostAllocated", 2),
        ("BalancedAllocation", 3),
        ("RequestedToCapacityRatio", 4),
    ]
    told = "\n".join(translated.warnings)
    assert all(word in told for word in ("predicates", "extenders", "priorities[4]"))


def test_without_priorities_the_old_defaults_score() -> None:
    plugins = read_policy("{kind: Policy, apiVersion: v1}").profile.plugins
    assert [item.strategy.name for item in plugins] == ["LeastAllocated", "BalancedAllocation"]


@pytest.mark.parametrize(
    ("priority", "field"),
    [
        ("{name: x, weight: 0}", "priorities[0].weight"),
        ("{name: x, weight: 1, argument: {unknown: {}}}", "priorities[0].argument.unknown"),
        (
            "{weight: 1, argument: {requestedToCapacityRatioArguments: {}}}",
            "priorities[0].argument.requestedToCapacityRatioArguments.shape",
        ),
        (
            "{weight: 1, argument: {requestedToCapacityRatioArguments: {shape: [{score: 100}]}}}",
            "priorities[0].argument.requestedToCapacityRatioArguments.shape[0].score",
        ),
    ],
)
def test_faults_carry_their_path(priority: str, field: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        read_policy(f"{{kind: Policy, apiVersion: v1, priorities: [{priority}]}}")
    assert [fault.field for fault in refused.value.faults] == [field]
