"""Replicas and sets that fit on nodes, as Karmada's estimator counts them, pod rules aside."""

from __future__ import annotations

import json
from typing import Any

from estimator.cases import answers
from tests.vectors.loading import for_each, read_lines

LINES = read_lines("node-estimate")


@for_each(LINES)
def test_node_estimate(line: dict[str, Any]) -> None:
    assert list(answers([json.dumps(line)])) == [{"id": line["id"], line["kind"]: line["out"]}]
