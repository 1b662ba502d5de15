"""Replicas and sets that fit on nodes, as Karmada's estimator counts them, pod rules aside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from estimator.cases import answers
from tests.vectors.loading import read_lines

LINES = read_lines("node-estimate")


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line["id"]))
def test_node_estimate(line: dict[str, Any]) -> None:
    assert list(answers([json.dumps(line)])) == [{"id": line["id"], line["kind"]: line["out"]}]
