"""Estimate requests and packed answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from federation.codec.estimates import (
    bound_word,
    components_from_message,
    estimates_to_message,
    shapes_from_message,
    source_word,
)
from federation.model.errors import InvalidRequest
from federation.model.estimate import Bound, EstimateOptions, Estimates, Merge, ModelRule, Source
from federation.model.reasons import stored_reason
from federation.v1 import estimates_pb2, resource_pb2
from tests.unit.codec.documents import violations

SHAPE = resource_pb2.ReplicaRequirements(resource_request={"cpu": "500m"})


def test_unspecified_options_are_the_defaults() -> None:
    shapes, options = shapes_from_message(estimates_pb2.EstimateReplicasRequest(shapes=[SHAPE]))
    assert shapes[0].request == {"cpu": 500}
    assert options == EstimateOptions()


def test_options_are_read() -> None:
    request = estimates_pb2.EstimateReplicasRequest(
        shapes=[SHAPE],
        highest_source=estimates_pb2.ESTIMATE_SOURCE_SUMMARY,
        model_rule=estimates_pb2.MODEL_RULE_SIMULATED,
        merge=estimates_pb2.ESTIMATE_MERGE_MINIMUM,
    )
    assert shapes_from_message(request)[1] == EstimateOptions(
        model_rule=ModelRule.SIMULATED,
        merge=Merge.MINIMUM,
        highest=Source.SUMMARY,
        ignore_claims=True,
    )


@pytest.mark.parametrize(
    ("source", "ignores"),
    [
        (estimates_pb2.ESTIMATE_SOURCE_UNSPECIFIED, False),
        (estimates_pb2.ESTIMATE_SOURCE_MODELS, True),
        (estimates_pb2.ESTIMATE_SOURCE_POOLS, False),
        (estimates_pb2.ESTIMATE_SOURCE_EXACT, False),
    ],
)
def test_claims_are_ignored_for_who_names_a_level_that_cannot_see_nodes(
    source: estimates_pb2.EstimateSource.ValueType, *, ignores: bool
) -> None:
    shapes = estimates_pb2.EstimateReplicasRequest(shapes=[SHAPE], highest_source=source)
    assert shapes_from_message(shapes)[1].ignore_claims is ignores
    sets = estimates_pb2.EstimateComponentSetsRequest(
        components=[resource_pb2.Component(name="a", replicas=1)], highest_source=source
    )
    assert components_from_message(sets)[1].ignore_claims is ignores


def test_every_broken_rule_is_told() -> None:
    request = estimates_pb2.EstimateReplicasRequest(
        shapes=[SHAPE, resource_pb2.ReplicaRequirements(resource_request={"cpu": "-1"})],
        clusters=["m1", "m1"],
        merge=9,
    )
    assert set(violations(shapes_from_message, request)) == {
        "shapes[1].resourceRequest[cpu]", "clusters[1]", "merge",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("count", "rule"), [(0, "is required"), (1001, "holds 1001: at most 1000 are looked at")]
)
def test_the_number_of_shapes_is_bounded(count: int, rule: str) -> None:
    request = estimates_pb2.EstimateReplicasRequest(shapes=[SHAPE] * count)
    with pytest.raises(InvalidRequest, match=f"shapes: {rule}"):
        shapes_from_message(request)


def test_answers_are_packed_shape_after_shape() -> None:
    first = Estimates(
        replicas_c=np.array([7, 2**40]),
        source_c=np.array([Source.MODELS, Source.EXACT], dtype=np.int8),
        bound_c=np.array([Bound.NONE, Bound.EXACT], dtype=np.int8),
        reasons={},
    )
    second = Estimates(
        replicas_c=np.array([0, 3]),
        source_c=np.array([Source.NONE, Source.SUMMARY], dtype=np.int8),
        bound_c=np.array([Bound.NONE, Bound.NONE], dtype=np.int8),
        reasons={0: stored_reason("no report")},
    )
    answer: Any = SimpleNamespace(
        fleet_generation="g1",
        names=("a", "b"),
        estimates=(first, second),
        choosing=(False, True),
        age_seconds_c=np.array([1.5, 0.0]),
        sequence_c=np.array([4, 0]),
    )
    message = estimates_to_message(answer, include_cluster_names=True)
    assert list(message.replicas) == [7, 2**31 - 1, 0, 3]
    assert list(message.unknown) == [2]
    assert list(message.sources) == [2, 4, 0, 1]
    assert list(message.bounds) == [1, 3, 1, 1]
    assert [(note.position, note.reason) for note in message.notes] == [(2, "no report")]
    # Only the second shape chooses its nodes, and only one of its levels cannot see them.
    assert list(message.ignores_node_claim) == [3]
    assert list(message.clusters) == ["a", "b"]
    assert list(message.age_seconds) == [1.5, 0.0]
    assert not estimates_to_message(answer, include_cluster_names=False).clusters


def test_words_for_people() -> None:
    assert [source_word(each) for each in Source] == [
        "unknown", "summary", "models", "pools", "exact",
    ]  # fmt: skip
    assert [bound_word(each) for each in Bound] == ["none", "lower", "exact"]
