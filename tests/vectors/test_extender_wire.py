"""Requests recorded from kube-scheduler 1.36's client, answered by us and taken by its rules."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from estimator.servers.extender_http import ExtenderServer
from lab.extenders import RecordingBinding, extender_of, pod, two_nodes
from tests.vectors.kube_scheduler_client import BOUND_PODS, WEIGHT, taken
from tests.vectors.loading import read_lines

LINES = read_lines("extender-wire")


def line_ids(line: dict[str, Any]) -> str:
    return f"{line['id']}-{line['name']}"


@pytest.mark.parametrize("line", LINES, ids=line_ids)
def test_client_takes_recorded_answers_as_recorded(line: dict[str, Any]) -> None:
    assert taken(line, line["response_code"], line["response_body"]) == line["result"]


async def answered(line: dict[str, Any], **request: int) -> tuple[int, str, RecordingBinding]:
    """Our answer over HTTP to the recorded request; n0 carries a pod with this request."""
    binding = RecordingBinding()
    cluster = two_nodes(pod("busy", "n0", **request), pod("victim", "n0", cpu=1000))
    server = ExtenderServer(extender_of(cluster, binding), host="127.0.0.1", port=0, tls=None)
    await server.start()
    try:
        headers = {
            "Content-Type": line["request"]["content_type"],
            "User-Agent": line["request"]["user_agent"],
            "Accept-Encoding": line["request"]["accept_encoding"],
        }
        url = f"http://127.0.0.1:{server.port}{line['request']['path']}"
        async with (
            aiohttp.ClientSession(auto_decompress=True) as session,
            session.post(url, data=line["request"]["body"], headers=headers) as response,
        ):
            return response.status, await response.text(), binding
    finally:
        await server.stop()


def of_verb(verb: str) -> list[dict[str, Any]]:
    return [line for line in LINES if line["verb"] == verb]


@pytest.mark.parametrize("line", of_verb("filter"), ids=line_ids)
async def test_filter(line: dict[str, Any]) -> None:
    status, body, _ = await answered(line, cpu=2900)
    assert taken(line, status, body) == {
        "error": False,
        "failed": {"n0": "short of cpu"},
        "failed_unresolvable": {},
        "nodes": ["n1"],
        "pods_seen_on_node_afterwards": {"n1": 0},
    }
    if not line["node_cache_capable"]:
        offered = json.loads(line["request"]["body"])["Nodes"]["items"]
        assert json.loads(body)["Nodes"]["items"] == [offered[1]]
    status, body, _ = await answered(line)
    result = taken(line, status, body)
    assert result["nodes"] == ["n0", "n1"]
    kept_pods = BOUND_PODS if line["node_cache_capable"] else {"n0": 0, "n1": 0}
    assert result["pods_seen_on_node_afterwards"] == kept_pods


@pytest.mark.parametrize("line", of_verb("prioritize"), ids=line_ids)
async def test_prioritize(line: dict[str, Any]) -> None:
    status, body, _ = await answered(line, cpu=2000, memory=4 * 2**30)
    # n0: cpu 3500 of 4000 is 87, memory 4 Gi + 200 Mi of 8 Gi is 52; n1: 12 and 2.
    expected = [("n0", 7), ("n1", 1)]
    assert taken(line, status, body) == {
        "error": False,
        "hosts": [
            {"contribution": points * WEIGHT * 10, "host": host, "score": points}
            for host, points in expected
        ],
        "weight": WEIGHT,
    }


@pytest.mark.parametrize("line", of_verb("preempt"), ids=line_ids)
async def test_preempt(line: dict[str, Any]) -> None:
    # Of the larger one even that makes no room.
    for cpu, expected in ((3000, {"n0": {"pdb": 1, "uids": ["victim-uid"]}}), (3600, {})):
        status, body, _ = await answered(line, cpu=cpu)
        assert taken(line, status, body) == {"error": False, "victims": expected}


@pytest.mark.parametrize("line", of_verb("bind"), ids=line_ids)
async def test_bind(line: dict[str, Any]) -> None:
    status, body, binding = await answered(line)
    assert taken(line, status, body) == {"error": False}
    assert binding.bound == [("d", "p", "pod-uid", "n1")]
