"""The types of scoringStrategy: each file's strategy can be named by configurations and cases."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import PurePath

import pytest
from click.testing import CliRunner

from estimator.binpack import fit_strategies
from estimator.binpack.fit_strategies import STRATEGIES
from estimator.binpack.strategy import StrategyReader
from estimator.scoring_config.kubescheduler import read_kube_scheduler
from federation.cli.__main__ import fedctl

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
LINE = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]


def test_every_file_of_the_package_is_a_type() -> None:
    files = [PurePath(each.name) for each in resources.files(fit_strategies).iterdir()]
    assert len(STRATEGIES) == sum(each.suffix == ".py" for each in files) - 1


@pytest.mark.parametrize("reader", STRATEGIES.values(), ids=STRATEGIES)
def test_every_type_is_read_from_a_configuration(reader: StrategyReader) -> None:
    strategy = {"type": reader.type, "resources": [{"name": "memory", "weight": 2}]}
    if reader.takes_shape:
        strategy["requestedToCapacityRatio"] = {"shape": LINE}
    arguments = {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}}
    document = {**HEAD, "profiles": [{"pluginConfig": [arguments]}]}
    [profile] = read_kube_scheduler(json.dumps(document))
    assert profile.plugins[0].strategy.name == reader.type
    assert profile.plugins[0].strategy.resources == {"memory"}


@pytest.mark.parametrize("reader", STRATEGIES.values(), ids=STRATEGIES)
def test_every_type_answers_a_case(reader: StrategyReader) -> None:
    node = {"name": "a", "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "pods": []}
    pod = {"containers": [{"requests": {"cpu": "1", "memory": "1Gi"}}]}
    shape = {"shape": [[0, 0], [100, 10]]} if reader.takes_shape else {}
    case = {"strategy": reader.type, "resources": [], **shape, "nodes": [node], "pod": pod}
    answer = CliRunner().invoke(fedctl, ["score", "--cases", "-"], input=json.dumps(case))
    assert json.loads(answer.stdout)["nodes"][0]["score"] is not None
