"""Volcano's scheduler.conf: which arguments count, which are ignored, what stops it."""

from __future__ import annotations

import pytest

from estimator.binpack.strategy import ResourceWeight
from estimator.binpack.volcano import VolcanoBinpack
from estimator.scoring_config.documents import InvalidConfiguration
from estimator.scoring_config.volcano import VolcanoConfiguration, read_volcano


def read(arguments: str, entry: str = "") -> VolcanoConfiguration:
    plugin = f"{{name: binpack, {entry} arguments: {{{arguments}}}}}"
    return read_volcano(f'actions: "enqueue, allocate"\ntiers:\n- plugins:\n  - {plugin}\n')


def weights(configuration: VolcanoConfiguration) -> dict[str, int]:
    assert configuration.binpack is not None
    return {item.resource: item.weight for item in configuration.binpack.weights}


def test_without_arguments_cpu_and_memory_count_once() -> None:
    assert read("").binpack == VolcanoBinpack(
        weight=1,
        weights=(
            ResourceWeight(resource="cpu", weight=1),
            ResourceWeight(resource="memory", weight=1),
        ),
    )


def test_extra_resources_count_only_when_listed() -> None:
    configuration = read(
        'binpack.resources: " nvidia.com/gpu, ,example.com/foo,cpu", binpack.cpu: 4,'
        " binpack.resources.nvidia.com/gpu: 7, binpack.resources.cpu: 50,"
        " binpack.resources.intel.com/bar: 9"
    )
    assert weights(configuration) == {
        "cpu": 4,
        "memory": 1,
        "nvidia.com/gpu": 7,
        "example.com/foo": 1,
    }
    assert configuration.warnings == ()


@pytest.mark.parametrize("value", ['"7"', "7.0", "true", "-3", "[7]"])
def test_what_is_no_usable_integer_counts_as_1_with_a_warning(value: str) -> None:
    configuration = read(f"binpack.memory: {value}")
    assert weights(configuration)["memory"] == 1
    (warning,) = configuration.warnings
    assert warning.startswith("tiers[0].plugins[0].arguments[binpack.memory] ")


def test_a_list_of_resources_must_be_text() -> None:
    configuration = read("binpack.resources: [nvidia.com/gpu]")
    assert "nvidia.com/gpu" not in weights(configuration)
    assert len(configuration.warnings) == 1


@pytest.mark.parametrize(
    ("arguments", "entry"), [("binpack.weight: 0", ""), ("", "enableNodeOrder: false,")]
)
def test_the_plugin_can_be_switched_off(arguments: str, entry: str) -> None:
    assert read(arguments, entry).binpack is None


def test_a_negative_plugin_weight_is_kept() -> None:
    binpack = read("binpack.weight: -2").binpack
    assert binpack is not None
    assert binpack.weight == -2


def test_without_the_plugin_nothing_is_registered() -> None:
    assert read_volcano("actions: allocate\ntiers: [{plugins: [{name: gang}]}]").binpack is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("tiers: []", "actions"),
        ("actions: 'enqueue, pack'", "actions"),
        ("actions: allocate\ntiers: {}", "tiers"),
        ("actions: allocate\ntiers: [[]]", "tiers[0]"),
        ("actions: allocate\ntiers: [{plugins: 1}]", "tiers[0].plugins"),
        ("actions: allocate\ntiers: [{plugins: [x]}]", "tiers[0].plugins[0]"),
    ],
)
def test_what_volcano_cannot_start_with_is_refused(text: str, field: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        read_volcano(text)
    assert [fault.field for fault in refused.value.faults] == [field]
