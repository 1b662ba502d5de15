"""Profiles of KubeSchedulerConfiguration: weights, what is switched off, paths of faults."""

from __future__ import annotations

import pytest

from estimator.scoring_config.documents import FaultType, InvalidConfiguration, Stage
from estimator.scoring_config.kubescheduler import read_kube_scheduler

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

FIT, BALANCED = "NodeResourcesFit", "NodeResourcesBalancedAllocation"
LEAST, BALANCE = "LeastAllocated", "BalancedAllocation"


def refusal(text: str) -> InvalidConfiguration:
    with pytest.raises(InvalidConfiguration) as refused:
        read_kube_scheduler(HEAD + text)
    return refused.value


@pytest.mark.parametrize(
    ("plugins", "weights"),
    [
        ("{}", {LEAST: 1, BALANCE: 1}),
        (f"{{score: {{enabled: [{{name: {FIT}, weight: 5}}]}}}}", {LEAST: 5, BALANCE: 1}),
        (f"{{multiPoint: {{enabled: [{{name: {FIT}, weight: 5}}]}}}}", {LEAST: 5, BALANCE: 1}),
        (f"{{score: {{enabled: [{{name: {FIT}}}]}}}}", {LEAST: 1, BALANCE: 1}),
        (f"{{score: {{disabled: [{{name: {BALANCED}}}]}}}}", {LEAST: 1}),
        ("{multiPoint: {disabled: [{name: '*'}]}}", {}),
        (
            f"{{score: {{disabled: [{{name: '*'}}], enabled: [{{name: {BALANCED}, weight: 2}}]}}}}",
            {BALANCE: 2},
        ),
        (
            "{"
            + ", ".join(
                f"{point}: {{enabled: [{{name: {FIT}, weight: {weight}}}]}}"
                for point, weight in (("score", 7), ("multiPoint", 5))
            )
            + "}",
            {LEAST: 7, BALANCE: 1},
        ),
    ],
)
def test_plugins_are_weighted_as_enabled(plugins: str, weights: dict[str, int]) -> None:
    (profile,) = read_kube_scheduler(f"{HEAD}profiles:\n- plugins: {plugins}\n")
    assert {plugin.strategy.name: plugin.weight for plugin in profile.plugins} == weights


def test_an_empty_document_is_the_default_profile() -> None:
    (profile,) = read_kube_scheduler(HEAD)
    assert profile.scheduler_name == "default-scheduler"
    assert [plugin.strategy.name for plugin in profile.plugins] == [LEAST, BALANCE]


def test_paths_lead_from_the_top_of_the_document() -> None:
    error = refusal(
        "profiles:\n"
        "- schedulerName: a\n"
        "- schedulerName: b\n"
        "  pluginConfig:\n"
        "  - {name: VolumeBinding, args: {}}\n"
        f"  - name: {FIT}\n"
        "    args:\n"
        "      ignoredResourceGroups: [example.com/x]\n"
        "      scoringStrategy: {type: RequestedToCapacityRatio, resources: [{weight: 101}]}\n"
    )
    assert error.stage is Stage.PLUGIN
    strategy = "profiles[1].pluginConfig[1].args.scoringStrategy"
    assert [(fault.field, fault.type) for fault in error.faults] == [
        ("profiles[1].pluginConfig[1].args.ignoredResourceGroups[0]", FaultType.INVALID),
        (f"{strategy}.resources[0].weight", FaultType.INVALID),
        (f"{strategy}.requestedToCapacityRatio", FaultType.REQUIRED),
    ]
    assert "profiles[1]" in error.message


def test_a_strategy_without_type_is_refused() -> None:
    error = refusal(
        f"profiles: [{{pluginConfig: [{{name: {FIT}, args: {{scoringStrategy: {{}}}}}}]}}]"
    )
    assert [fault.type for fault in error.faults] == [FaultType.NOT_SUPPORTED]


def test_arguments_of_a_plugin_that_is_never_built_are_not_checked() -> None:
    (profile,) = read_kube_scheduler(
        f"{HEAD}profiles:\n"
        f"- plugins: {{multiPoint: {{disabled: [{{name: {FIT}}}]}}}}\n"
        f"  pluginConfig: [{{name: {FIT}, args: {{scoringStrategy: {{type: none}}}}}}]\n"
    )
    assert [plugin.strategy.name for plugin in profile.plugins] == [BALANCE]


def test_every_fault_of_a_stage_is_reported() -> None:
    error = refusal(
        "parallelism: 0\n"
        "percentageOfNodesToScore: 101\n"
        "clientConnection: {burst: -1}\n"
        "leaderElection: {leaseDuration: 5s, resourceLock: endpoints}\n"
        "extenders:\n- {urlPrefix: u, prioritizeVerb: p}\n"
        "profiles:\n- schedulerName: a\n  percentageOfNodesToScore: -1\n"
        "  plugins: {filter: {enabled: [{name: EBSLimits}]}}\n"
        "  pluginConfig:\n"
        "  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 101}}\n"
        "  - name: DefaultPreemption\n"
        "    args: {minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}\n"
        "  - {name: PodTopologySpread, args: {defaultConstraints: [{}]}}\n"
        "  - {name: VolumeBinding, args: {bindTimeoutSeconds: -1}}\n"
    )
    assert error.stage is Stage.VALIDATE
    args = "profiles[0].pluginConfig"
    assert [fault.field for fault in error.faults] == [
        "clientConnection.burst",
        "leaderElection.leaseDuration",
        "leaderElection.resourceLock",
        "parallelism",
        "profiles[0].percentageOfNodesToScore",
        "profiles[0].plugins.filter.enabled[0]",
        f"{args}[0].args.hardPodAffinityWeight",
        f"{args}[1].args.minCandidateNodesPercentage",
        f"{args}[1].args.minCandidateNodesAbsolute",
        f"{args}[2].args.defaultingType",
        f"{args}[3].args.bindTimeoutSeconds",
        "percentageOfNodesToScore",
        "extenders[0].weight",
    ]


def test_decoding_names_every_field_it_does_not_take() -> None:
    error = refusal(
        "paralelism: 1\nprofiles:\n- pluginConfig:\n"
        f"  - {{name: {FIT}, args: {{ignoredResources: x, scoringStrategy: {{Type: a}}}}}}\n"
    )
    assert error.stage is Stage.DECODE
    args = "profiles[0].pluginConfig[0].args"
    assert [fault.field for fault in error.faults] == [
        "paralelism",
        f"{args}.ignoredResources",
        f"{args}.scoringStrategy.Type",
    ]
