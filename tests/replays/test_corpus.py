"""Decisions that were recorded once replay equal, or the revision of the algorithm is raised."""

from __future__ import annotations

import base64
import json
from collections import Counter

import msgspec

from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from federation.services.packed_traces import Recorded
from tests.replays.record import CORPUS


def test_every_recorded_decision_replays_equal() -> None:
    lines = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    bodies = {
        base64.b64decode(line["name"]): base64.b64decode(line["body"])
        for line in lines
        if "body" in line
    }
    outcomes = Counter[str]()
    for line in lines:
        if "trace" not in line:
            continue
        plain = {**line, "trace": base64.b64decode(line["trace"]), "bodies": bodies}
        replay = msgspec.convert(plain, Recorded).replayed(DEFAULT_PROFILES)
        assert replay.difference is None, replay
        assert replay.stored_sha256 == replay.replayed_sha256
        assert replay.stored_revision == replay.replayed_revision
        outcomes[line["outcome"]] += 1
    assert outcomes.total() >= 200
    assert len(outcomes) == 4, outcomes
    assert min(outcomes.values()) >= 5, outcomes
