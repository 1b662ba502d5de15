"""The simulated kube-scheduler binds as many pods as the real one was seen to bind.

Recorded: three clusters, and for every shape three pods more than fit, which then stay pending.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from estimator.kube.dump import read_dump
from estimator.placing.incoming import IncomingPod
from lab.truth.kube_scheduler import KubeScheduler, Timeline
from tests.vectors.test_clusters import DUMPS, SHAPES

TOO_MANY = 3


@pytest.mark.parametrize(
    ("member", "shape"), SHAPES, ids=[f"{member}-{shape['id']}" for member, shape in SHAPES]
)
def test_as_many_are_bound_as_the_real_one_bound(member: str, shape: dict[str, Any]) -> None:
    content = (DUMPS / f"{member}.json").read_bytes()
    bound: dict[str, str] = {}

    def bind(pod: IncomingPod, node: str) -> None:
        bound[pod.uid] = node

    timeline = Timeline()
    scheduler = KubeScheduler(
        nodes=read_dump(content).nodes,
        timeline=timeline,
        bind=bind,
        random=np.random.default_rng(1),
    )
    for item in json.loads(content)["items"]:
        is_over = item.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if item["kind"] == "Pod" and item["spec"].get("nodeName") and not is_over:
            scheduler.put_pod(item)
    asked = shape["kube_scheduler_bound"] + TOO_MANY
    for number in range(asked):
        scheduler.put_pod(pod(number, shape))
    timeline.run(1.0 + 2 * scheduler.delays.cycle * asked)
    assert len(bound) == shape["kube_scheduler_bound"]
    assert len(scheduler.pending) == TOO_MANY
    assert Counter(bound.values()) == {node: n for node, n in shape["per_node"].items() if n}


def pod(number: int, shape: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "resources": {"requests": shape["requests"]}}],
        "nodeSelector": shape["node_selector"],
        "tolerations": shape["tolerations"],
    }
    if shape["affinity_terms"]:
        terms = [
            {
                "matchExpressions": each.get("match_expressions", []),
                "matchFields": each.get("match_fields", []),
            }
            for each in shape["affinity_terms"]
        ]
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    metadata = {"name": f"p{number}", "namespace": "recorded", "uid": f"uid-p{number}"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
