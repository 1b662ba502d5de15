"""How kube-scheduler's HTTP client takes an extender's answer, in plain Python.

Must not know our extender: recorded answers and ours go through the same rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Result = dict[str, Any]

BOUND_PODS = {"n0": 1, "n1": 0}
WEIGHT = 3


def taken(line: Mapping[str, Any], status: int, body: str) -> Result:
    """What the client makes of an answer to the recorded request."""
    takers: dict[str, Callable[[Mapping[str, Any], Any], Result]] = {
        "filter": _filter,
        "prioritize": _prioritize,
        "preempt": _preempt,
        "bind": _bind,
    }
    if status != 200:
        return _failed(line["verb"])
    try:
        return takers[line["verb"]](line, json.loads(body))
    except (ValueError, TypeError, AttributeError):
        return _failed(line["verb"])


def _failed(verb: str) -> Result:
    failed: dict[str, Result] = {
        "filter": {
            "failed": None,
            "failed_unresolvable": None,
            "nodes": [],
            "pods_seen_on_node_afterwards": {},
        },
        "prioritize": {"weight": 0},
        "preempt": {"victims": {}},
        "bind": {},
    }
    return {"error": True, **failed[verb]}


def _keys(value: Any) -> dict[str, Any]:
    """Go decodes keys in any case."""
    return {key.lower(): each for key, each in value.items()}


def _filter(line: Mapping[str, Any], value: Any) -> Result:
    answer = _keys(value)
    if answer.get("error"):
        raise ValueError(answer["error"])
    offered = ["n0", "n1"]
    names, nodes = answer.get("nodenames"), answer.get("nodes")
    fresh = False
    kept: list[str] = []
    if line["node_cache_capable"] and names is not None:
        if not set(names) <= set(offered):
            raise ValueError("a node that was not offered")
        kept = names
    elif nodes is not None:
        kept = [node["metadata"]["name"] for node in _keys(nodes)["items"]]
        fresh = True
    return {
        "error": False,
        "failed": answer.get("failednodes"),
        "failed_unresolvable": answer.get("failedandunresolvablenodes"),
        "nodes": kept,
        "pods_seen_on_node_afterwards": {name: 0 if fresh else BOUND_PODS[name] for name in kept},
    }


def _prioritize(line: Mapping[str, Any], value: Any) -> Result:
    if not isinstance(value, list | None):
        raise TypeError("must be a list")
    hosts = []
    for item in map(_keys, value or []):
        if not isinstance(item["score"], int):
            raise TypeError("must be whole")
        contribution = item["score"] * WEIGHT * 10
        score = {"contribution": contribution, "host": item["host"], "score": item["score"]}
        hosts.append(score)
    return {"error": False, "hosts": hosts, "weight": WEIGHT}


def _preempt(line: Mapping[str, Any], value: Any) -> Result:
    victims = {}
    for node, raw in (_keys(value).get("nodenametometavictims") or {}).items():
        meta = _keys(raw)
        uids = [_keys(pod)["uid"] for pod in meta["pods"]]
        if not set(uids) <= {"victim-uid"}:
            raise ValueError("a pod that is not on the node")
        victims[node] = {"pdb": meta.get("numpdbviolations", 0), "uids": uids}
    return {"error": False, "victims": victims}


def _bind(line: Mapping[str, Any], value: Any) -> Result:
    return {"error": bool(_keys(value).get("error"))}
