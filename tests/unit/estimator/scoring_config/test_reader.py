"""A text says itself which of the three formats it is."""

from __future__ import annotations

import pytest

from estimator.scoring_config.documents import InvalidConfiguration
from estimator.scoring_config.reader import read_scoring_configuration

KUBE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: a}, {schedulerName: b}]
"""


@pytest.mark.parametrize(
    ("text", "names", "warned"),
    [
        (KUBE, ["a", "b"], False),
        ("{kind: Policy, apiVersion: v1}", ["default-scheduler"], True),
        (
            "actions: allocate\ntiers: [{plugins: [{name: binpack}]}]",
            ["VolcanoBinpack"],
            False,
        ),
        ("actions: allocate\nactions: backfill\ntiers: []", [], False),
    ],
)
def test_each_format_is_recognised(text: str, names: list[str], *, warned: bool) -> None:
    configuration = read_scoring_configuration(text)
    assert [strategy.name for strategy in configuration.strategies] == names
    assert bool(configuration.warnings) is warned


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("kind: Pod", "kind"),
        ("a: 1", "kind"),
        ("kind: Policy\nkind: Policy", "kind"),
        ("kind: KubeSchedulerConfiguration\napiVersion: v1", "apiVersion"),
    ],
)
def test_anything_else_is_refused_by_its_kind(text: str, field: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        read_scoring_configuration(text)
    assert [fault.field for fault in refused.value.faults] == [field]
