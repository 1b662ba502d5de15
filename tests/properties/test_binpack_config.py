"""Whatever a configuration holds, reading it ends in strategies or in named faults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from estimator.binpack.arrays import ReplicaRequest
from estimator.binpack.node_scores import NodeLoad, tabulate
from estimator.binpack.strategy import Strategy
from estimator.scoring_config.documents import Fault, InvalidConfiguration
from estimator.scoring_config.reader import read_scoring_configuration

NODES = tabulate([NodeLoad(allocatable={"cpu": 10, "a/b": 3}, requested={"cpu": 4})])
FIT, BALANCED = "NodeResourcesFit", "NodeResourcesBalancedAllocation"

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 120),
    st.just(2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "*", "a", FIT, "MostAllocated", "RequestedToCapacityRatio", "1s"]),
)


def objects(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """Objects with any of the fields, each mostly as it should be and sometimes anything."""
    loose = {name: st.one_of(field, field, field, scalars) for name, field in fields.items()}
    return st.fixed_dictionaries({}, optional=loose)


numbers = st.integers(-1, 101)
resources = st.lists(
    objects({"name": st.sampled_from(["cpu", "a/b", ""]), "weight": numbers}), max_size=3
)
shape = st.lists(objects({"utilization": numbers, "score": st.integers(-1, 11)}), max_size=3)
plugin_set = objects(
    {
        name: st.lists(
            objects({"name": st.sampled_from([FIT, BALANCED, "*", "Other"])}), max_size=2
        )
        for name in ("enabled", "disabled")
    }
)
strategy = objects(
    {
        "type": st.sampled_from(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]),
        "resources": resources,
        "requestedToCapacityRatio": objects({"shape": shape}),
    }
)
arguments = objects(
    {"scoringStrategy": strategy, "ignoredResources": st.lists(scalars), "resources": resources}
)
profiles = st.lists(
    objects(
        {
            "schedulerName": st.sampled_from(["a", "b"]),
            "plugins": objects(
                dict.fromkeys(("score", "multiPoint", "queueSort", "filter"), plugin_set)
            ),
            "pluginConfig": st.lists(
                objects({"name": st.sampled_from([FIT, BALANCED, "Other"]), "args": arguments}),
                max_size=2,
            ),
        }
    ),
    max_size=2,
)
kube = st.builds(
    lambda fields: {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        **fields,
    },
    objects({"profiles": profiles, "extenders": st.lists(objects({"weight": numbers}))}),
)
policies = st.builds(
    lambda fields: {"kind": "Policy", "apiVersion": "v1", **fields},
    objects(
        {
            "priorities": st.lists(
                objects(
                    {
                        "name": st.sampled_from(["MostRequestedPriority", "x"]),
                        "weight": numbers,
                        "argument": objects(
                            {
                                "requestedToCapacityRatioArguments": objects(
                                    {"shape": shape, "resources": resources}
                                )
                            }
                        ),
                    }
                ),
                max_size=2,
            )
        }
    ),
)
volcano = objects(
    {
        "actions": st.just("allocate"),
        "tiers": st.lists(
            objects(
                {
                    "plugins": st.lists(
                        objects(
                            {
                                "name": st.just("binpack"),
                                "arguments": objects(
                                    dict.fromkeys(
                                        ("binpack.weight", "binpack.cpu", "binpack.resources"),
                                        scalars,
                                    )
                                ),
                            }
                        )
                    )
                }
            )
        ),
    }
)


def read(document: dict[str, Any]) -> tuple[tuple[Strategy, ...], Sequence[Fault]]:
    try:
        return read_scoring_configuration(json.dumps(document)).strategies, ()
    except InvalidConfiguration as refused:
        return (), refused.faults


@settings(max_examples=150, deadline=None)
@given(st.one_of(kube, kube, policies, volcano))
def test_reading_ends_in_strategies_that_score_or_in_named_faults(document: dict[str, Any]) -> None:
    strategies, faults = read(document)
    for strategy in strategies:
        assert np.isfinite(strategy.score(NODES, ReplicaRequest.of({"cpu": 1}))).all()
    assert all(fault.rule for fault in faults)


@settings(max_examples=50, deadline=None)
@given(kube)
def test_kube_scheduler_files_give_a_profile_or_a_fault(document: dict[str, Any]) -> None:
    strategies, faults = read(document)
    assert bool(strategies) is not bool(faults)
