"""What kube-scheduler 1.36 accepts, and at which stage and field it refuses the rest."""

from __future__ import annotations

from typing import Any

import pytest

from estimator.scoring_config.documents import InvalidConfiguration
from estimator.scoring_config.kubescheduler import read_kube_scheduler
from tests.vectors.loading import for_each, read_lines

LINES = read_lines("scoring-config-validation")

# A plugin is built without knowing where its arguments stand; our paths say it.
PLUGIN_PATH = "profiles[0].pluginConfig[0].args."


@for_each(LINES)
def test_config_validation(line: dict[str, Any]) -> None:
    if line["stage"] == "ok":
        assert [
            {
                "resources": [
                    {"name": item.resource, "weight": item.weight}
                    for item in profile.plugins[0].strategy.weights
                ],
                "scheduler_name": profile.scheduler_name,
                "type": profile.plugins[0].strategy.name,
            }
            for profile in read_kube_scheduler(line["doc"])
        ] == line["profiles"]
        return
    with pytest.raises(InvalidConfiguration) as refused:
        read_kube_scheduler(line["doc"])
    assert refused.value.stage.value == line["stage"]
    if line["stage"] == "decode":
        assert refused.value.faults
        return
    prefix = PLUGIN_PATH if line["stage"] == "plugin" else ""
    assert [{"type": fault.type.value, "field": fault.field} for fault in refused.value.faults] == [
        {"type": error["type"], "field": prefix + error["field"]} for error in line["errors"]
    ]
