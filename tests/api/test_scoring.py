from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.operations import scoring
from federation.v1.scoring_pb2 import (
    SCORE_SCALE_DOCUMENTATION,
    ScoreNodesResponse,
    ScoringContainer,
    ScoringNode,
    ScoringPod,
)
from lab.control_planes import Plane, refused

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "scoring"
RATIO = (EXAMPLES / "requested-to-capacity-ratio.yaml").read_text()
VOLCANO = (EXAMPLES / "volcano-scheduler.conf").read_text()
FOO = "intel.com/foo"
MAX_NODES = 5_000


def pod(**request: str) -> ScoringPod:
    named = {name.replace("foo", FOO): text for name, text in request.items()}
    return ScoringPod(containers=[ScoringContainer(requests=named)])


def documented() -> dict[str, Any]:
    """The worked example of Kubernetes' page."""
    return {
        "configuration": RATIO,
        "pod": pod(cpu="2", memory="256Mi", foo="2"),
        "nodes": [
            ScoringNode(
                name="node-1",
                allocatable={"cpu": "8", "memory": "1Gi", FOO: "4", "pods": "110"},
                pods=[pod(cpu="1", memory="256Mi", foo="1")],
            ),
            ScoringNode(
                name="node-2",
                allocatable={"cpu": "8", "memory": "1Gi", FOO: "8", "pods": "110"},
                pods=[pod(cpu="6", memory="512Mi", foo="2")],
            ),
        ],
    }


async def scored(api: Plane, **changes: Any) -> ScoreNodesResponse:
    answer: ScoreNodesResponse = await api.ask("ScoreNodes", **{**documented(), **changes})
    return answer


async def test_scores_with_their_parts(api: Plane) -> None:
    answer = await scored(api)
    assert [(node.name, node.score, node.balanced, node.total) for node in answer.nodes] == [
        ("node-1", 60, 75, 135),
        ("node-2", 69, 75, 144),
    ]
    foo = answer.nodes[0].resources[0]
    assert (foo.resource, foo.used, foo.request, foo.allocatable) == (FOO, "1", "2", "4")
    assert (foo.utilization_percent, foo.score, foo.weight, foo.skipped) == (75, 75, 5, "")
    assert not answer.nodes[0].resources[-1].HasField("score")
    assert answer.strategy == "default-scheduler"


async def test_documented_scale(api: Plane) -> None:
    answer = await scored(api, scale=SCORE_SCALE_DOCUMENTATION)
    assert [node.score for node in answer.nodes] == [5, 7]
    assert not answer.nodes[0].HasField("balanced")


async def test_volcano(api: Plane) -> None:
    nodes = [ScoringNode(name="n", allocatable={"cpu": "4", "nvidia.com/gpu": "8", "pods": "9"})]
    answer = await scored(api, configuration=VOLCANO, nodes=nodes, pod=pod(cpu="2"))
    assert answer.nodes[0].score == 250.0
    assert answer.strategy == "VolcanoBinpack"


async def test_what_has_no_effect_is_told(api: Plane) -> None:
    answer = await scored(api, configuration=(EXAMPLES / "policy.json").read_text())
    assert len(answer.warnings) == 1


async def test_what_a_node_is_short_of(api: Plane) -> None:
    answer = await scored(api, pod=pod(cpu="3", foo="9"))
    assert list(answer.nodes[1].insufficient) == ["cpu", FOO]
    assert list(answer.nodes[1].unresolvable) == [FOO]


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        ({"nodes": [ScoringNode(name="n", allocatable={"memory": "7Ei"})]}, "node n"),
        ({"configuration": VOLCANO, "scale": SCORE_SCALE_DOCUMENTATION}, "scale"),
    ],
)
async def test_what_cannot_be_scored_is_refused(
    api: Plane, changes: dict[str, Any], violation: str
) -> None:
    refusal = await refused(scored(api, **changes))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == {violation}


async def test_answer_too_large_for_a_client_is_refused(
    api: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "MAX_ANSWER_BYTES", 100)
    refusal = await refused(scored(api))
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "2 nodes with 3 resources" in refusal.message


async def test_five_thousand_nodes_fit(api: Plane) -> None:
    nodes = [
        ScoringNode(
            name=f"node-{number:04}",
            allocatable={"cpu": "8", "memory": "32Gi", "pods": "110"},
            pods=[pod(cpu="1", memory="2Gi")],
        )
        for number in range(MAX_NODES)
    ]
    answer = await scored(api, nodes=nodes)
    assert len(answer.nodes) == MAX_NODES
