"""The operation that scores nodes for a pod, as kube-scheduler or Volcano would score them.

Must not compute scores: the agent's pure scorer does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from estimator.binpack.node_scores import NodeScore, NodeWithPods, amount_text, score_nodes
from estimator.binpack.strategy import ResourceScore, Strategy
from estimator.scoring_config.documents import InvalidConfiguration
from estimator.scoring_config.reader import (
    ScoringConfiguration,
    on_documented_scale,
    read_scoring_configuration,
    strategy_for,
)
from federation.codec.counts import refuse_too_many
from federation.codec.requirements import read_amounts
from federation.codec.rules import check_rules
from federation.codec.violations import Violations
from federation.model.errors import InvalidRequest, LimitExceeded
from federation.model.pod_request import ContainerRequest, PodResources
from federation.operations.table import OperationCall, operation
from federation.services.threads import RESTS, SCORING
from federation.v1 import scoring_pb2 as messages

MAX_PODS = 20_000
MAX_CONTAINERS = 100
# Clients take answers of up to 4 MiB.
MAX_ANSWER_BYTES = 4 * 1024 * 1024 - 64 * 1024


@operation("Scoring/ScoreNodes", checked=False)
async def score_nodes_of_request(
    _: OperationCall, request: messages.ScoreNodesRequest
) -> messages.ScoreNodesResponse:
    """Score one request at a time, because a large one takes a second."""
    return await SCORING.run(_scored, request)


def _check_limits(request: messages.ScoreNodesRequest) -> None:
    violations = Violations()
    check_rules(request, "", violations)
    pods = sum(len(node.pods) for node in request.nodes)
    if pods > MAX_PODS:
        violations.add("nodes", f"must carry at most {MAX_PODS} pods in all, not {pods}")
    refuse_too_many(request.pod, "pod", violations)
    violations.check()


def _scored(request: messages.ScoreNodesRequest) -> messages.ScoreNodesResponse:
    _check_limits(request)
    configuration = _configuration(request.configuration)
    strategy = strategy_for(configuration, request.scheduler_name)
    if request.scale == messages.SCORE_SCALE_DOCUMENTATION:
        strategy = on_documented_scale(strategy)
    violations = Violations()
    pod = _pod(request.pod, "pod", violations)
    nodes = [_node(node, f"nodes[{at}]", violations) for at, node in enumerate(request.nodes)]
    violations.check()
    answer = messages.ScoreNodesResponse(
        nodes=[_node_score(scored, strategy) for scored in score_nodes(strategy, pod, nodes)],
        warnings=configuration.warnings,
        strategy=strategy.name,
    )
    if answer.ByteSize() > MAX_ANSWER_BYTES:
        raise LimitExceeded(
            f"{len(nodes)} nodes with {len(strategy.resources)} resources each are more than one "
            "answer holds: ask for fewer nodes at a time"
        )
    return answer


def _configuration(text: str) -> ScoringConfiguration:
    try:
        return read_scoring_configuration(text)
    except InvalidConfiguration as error:
        violations = (violation.under("configuration") for violation in error.violations)
        raise InvalidRequest(violations, reason=error.reason) from error


def _node(message: messages.ScoringNode, path: str, violations: Violations) -> NodeWithPods:
    RESTS.take()
    return NodeWithPods(
        name=message.name,
        allocatable=_quantities(message.allocatable, f"{path}.allocatable", violations),
        pods=tuple(
            _pod(pod, f"{path}.pods[{at}]", violations) for at, pod in enumerate(message.pods)
        ),
    )


def _pod(message: messages.ScoringPod, path: str, violations: Violations) -> PodResources:
    if len(message.containers) + len(message.init_containers) > MAX_CONTAINERS:
        violations.add(path, f"has more than {MAX_CONTAINERS} containers")
        return PodResources()
    return PodResources(
        containers=_containers(message.containers, f"{path}.containers", violations),
        init_containers=_containers(message.init_containers, f"{path}.initContainers", violations),
        overhead=_quantities(message.overhead, f"{path}.overhead", violations),
        pod_level=_quantities(message.pod_requests, f"{path}.podRequests", violations),
    )


def _containers(
    containers: Iterable[messages.ScoringContainer], path: str, violations: Violations
) -> tuple[ContainerRequest, ...]:
    return tuple(
        ContainerRequest(
            requests=_quantities(container.requests, f"{path}[{at}].requests", violations),
            restart_always=container.restart_always,
        )
        for at, container in enumerate(containers)
    )


def _quantities(message: Mapping[str, str], path: str, violations: Violations) -> dict[str, str]:
    quantities = dict(message)
    read_amounts(quantities, path, violations)
    return quantities


def _node_score(scored: NodeScore, strategy: Strategy) -> messages.NodeScore:
    RESTS.take()
    return messages.NodeScore(
        name=scored.name,
        score=scored.score,
        balanced=scored.balanced,
        total=scored.total,
        insufficient=scored.insufficient,
        unresolvable=scored.unresolvable,
        resources=[_resource_score(part, strategy) for part in scored.resources],
    )


def _resource_score(part: ResourceScore, strategy: Strategy) -> messages.ResourceScore:
    return messages.ResourceScore(
        plugin=part.strategy,
        resource=part.resource,
        used=amount_text(strategy, part.resource, part.used),
        request=amount_text(strategy, part.resource, part.request),
        allocatable=amount_text(strategy, part.resource, part.allocatable),
        utilization_percent=part.utilization_percent,
        score=part.score,
        weight=part.weight,
        skipped="" if part.skipped is None else part.skipped.value,
    )
