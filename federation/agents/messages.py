"""What agents say and are told, between messages and values.

Must not decide what follows from a message; refuses what breaks a rule, all violations at once.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass

from federation.codec import ranges, texts
from federation.codec.clusters import enablements_from_messages
from federation.codec.counts import refuse_too_many
from federation.codec.models import model_to_messages
from federation.codec.requirements import component_messages, requirements_to_message
from federation.codec.rules import check_rules
from federation.codec.strict import refuse_nul
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.model.errors import FederationError, Unavailable
from federation.model.node_plans import NodePlan, NodeShare, PlaceOrder
from federation.model.quotations import quoted
from federation.runtime import spans
from federation.services.agent_values import AgentHello, AgentSight, Placer, WelcomeFacts
from federation.services.values import ExactQuestion, IssuedCredential
from federation.v1.agents_pb2 import (
    AssumedWorkload,
    ConnectResponse,
    EstimateReply,
    EstimateRequest,
    Goodbye,
    Heartbeat,
    Hello,
    NewCredential,
    PlaceReply,
    PlaceRequest,
    Reconnect,
    Refusal,
    Report,
    Resync,
    Share,
    Sight,
    Welcome,
)

# What an agent says is part of every list of clusters, and an answer holds 4 MiB.
MAX_HELLO_BYTES = 1024 * 1024
MAX_TEXT_CHARACTERS = 1000
# The largest clusters have 5,000 nodes; a workload may have several components on each.
MAX_NODE_SHARES = 20_000
MAX_SCORE = 100
MAX_TOTAL = 1e15


def hello_from_message(message: Hello) -> AgentHello:
    """Raises InvalidRequest."""
    found = Violations()
    ranges.size(message, "hello", found, most_bytes=MAX_HELLO_BYTES)
    refuse_too_many(message, "hello", found)
    check_rules(message, "hello", found)
    found.check()
    refuse_nul(message, "hello", found)
    agent_time = ranges.optional_seconds(message, "agent_time", "hello.agentTime", found)
    sight = sight_of(message, "hello", found)
    found.check()
    return AgentHello(
        epoch=message.epoch,
        acknowledged_sequence=message.acknowledged_sequence,
        agent_version=message.agent_version,
        kubernetes_version=message.kubernetes_version,
        placer=Placer(message.placer),
        api_enablements=enablements_from_messages(message.api_enablements),
        agent_time=agent_time,
        sight=sight,
        takes_place_requests=message.takes_place_requests,
        sees_no_nodes=message.sees_no_nodes,
    )


def sight_of(
    message: Hello | Report | Heartbeat, path: str, found: Violations
) -> AgentSight | None:
    """What the agent says of its sight, None when it says nothing."""
    if not message.HasField("sight"):
        return None
    sight: Sight = message.sight
    check_rules(sight, f"{path}.sight", found)
    if "\0" in sight.message:
        found.add(f"{path}.sight.message", "must not contain NUL")
    return AgentSight(
        picture_age_seconds=sight.picture_age_seconds,
        blind=sight.blind,
        message=quoted(sight.message[:MAX_TEXT_CHARACTERS]),
        skipped_objects=sight.skipped_objects,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatFacts:
    """A heartbeat: the newest report's sequence and hash, and the agent's time in Unix seconds."""

    sequence: int
    content_hash: str
    agent_time: float
    sight: AgentSight | None = None


def beat_from_message(message: Heartbeat) -> HeartbeatFacts:
    """Raises InvalidRequest."""
    found = Violations()
    agent_time = ranges.seconds(message.agent_time, "heartbeat.agentTime", found)
    check_rules(message, "heartbeat", found)
    sight = sight_of(message, "heartbeat", found)
    found.check()
    return HeartbeatFacts(
        sequence=message.sequence,
        content_hash=message.content_hash,
        agent_time=agent_time,
        sight=sight,
    )


def refusal_to_message(kind: str, error: FederationError) -> ConnectResponse:
    """What the agent is told of a message that breaks a rule."""
    return ConnectResponse(refusal=Refusal(kind=kind, reason=error.message[:MAX_TEXT_CHARACTERS]))


def new_credential_to_message(issued: IssuedCredential) -> ConnectResponse:
    return ConnectResponse(
        new_credential=NewCredential(
            credential=issued.credential, expire_time=timestamp_from_seconds(issued.expires_at)
        )
    )


def welcome_to_message(facts: WelcomeFacts) -> ConnectResponse:
    return ConnectResponse(
        welcome=Welcome(
            resource_models=model_to_messages(facts.model),
            model_hash=facts.model_hash,
            heartbeat_seconds=facts.heartbeat_seconds,
            report_seconds=facts.report_seconds,
            server_time=timestamp_from_seconds(facts.server_time),
        )
    )


def place_request_to_message(request_id: str, order: PlaceOrder) -> ConnectResponse:
    return ConnectResponse(
        place_request=PlaceRequest(
            request_id=request_id,
            decision_id=order.decision_id,
            binding=order.binding_key,
            shares=[
                Share(
                    component=share.component,
                    replicas=share.replicas,
                    replica_requirements=requirements_to_message(share.requirements),
                )
                for share in order.shares
            ],
            planned=order.planned,
        )
    )


def estimate_request_to_message(request_id: str, question: ExactQuestion) -> ConnectResponse:
    return ConnectResponse(
        estimate_request=EstimateRequest(
            request_id=request_id,
            shapes=[requirements_to_message(shape) for shape in question.shapes],
            components=component_messages(question.components),
            assumed=[
                AssumedWorkload(components=component_messages(workload))
                for workload in question.assumed
            ],
        )
    )


def estimates_from_message(
    cluster: str, question: ExactQuestion, message: EstimateReply
) -> tuple[int, ...]:
    """One number for each that was asked for.

    Raises Unavailable when the agent cannot tell, InvalidRequest when its answer breaks a rule.
    """
    if message.message:
        why = quoted(message.message[:MAX_TEXT_CHARACTERS])
        raise Unavailable(f"the agent of cluster {cluster} cannot tell: {why}")
    found = Violations()
    asked = 1 if question.components else len(question.shapes)
    if len(message.replicas) != asked:
        rule = f"must hold {asked} numbers, not {len(message.replicas)}"
        found.add("estimateReply.replicas", rule)
    for position, replicas in enumerate(message.replicas[:asked]):
        ranges.replicas(replicas, f"estimateReply.replicas[{position}]", found)
    found.check()
    return tuple(message.replicas)


def node_plan_from_message(cluster: str, order: PlaceOrder, message: PlaceReply) -> NodePlan:
    """The plan for what was asked. Raises InvalidRequest, also for answers to something else."""
    found = Violations()
    if len(message.nodes) > MAX_NODE_SHARES:
        rule = f"holds {len(message.nodes)}: at most {MAX_NODE_SHARES} are looked at"
        found.add("placeReply.nodes", rule)
    found.check()
    refuse_nul(message, "placeReply", found)
    _check_shares(order, message, found)
    wanted = sum(share.replicas for share in order.shares)
    placed = sum(node.replicas for node in message.nodes)
    if message.unplaced < 0 or placed + message.unplaced != wanted:
        rule = f"nodes and unplaced must sum to the {wanted} replicas asked for"
        found.add("placeReply.unplaced", rule)
    if message.claimed and (message.unplaced or not order.planned):
        rule = "is for replicas that were to be planned and all have a node"
        found.add("placeReply.claimed", rule)
    found.check()
    return NodePlan(
        cluster=cluster,
        nodes=tuple(
            NodeShare(
                node=node.node,
                component=node.component,
                replicas=node.replicas,
                score=node.total if node.total_scale else float(node.score),
                scale=node.total_scale or float(MAX_SCORE),
            )
            for node in message.nodes
        ),
        unplaced=message.unplaced,
        message=quoted(message.message[:MAX_TEXT_CHARACTERS]),
        strategy=message.strategy[:MAX_TEXT_CHARACTERS],
        claimed=message.claimed,
    )


def _check_shares(order: PlaceOrder, message: PlaceReply, found: Violations) -> None:
    wanted = {share.component: share.replicas for share in order.shares}
    placed: Counter[str] = Counter()
    for number, node in enumerate(message.nodes):
        path = f"placeReply.nodes[{number}]"
        ranges.required(node.node, f"{path}.node", found)
        texts.word(node.node, f"{path}.node", found)
        if node.replicas < 1:
            found.add(f"{path}.replicas", "must be at least 1")
        if not 0 <= node.score <= MAX_SCORE:
            rule = f"must be from 0 to {MAX_SCORE}"
            found.add(f"{path}.score", rule)
        if not 0.0 <= node.total_scale <= MAX_TOTAL:
            found.add(f"{path}.totalScale", f"must be from 0 to {MAX_TOTAL:.0f}")
        elif not -node.total_scale <= node.total <= node.total_scale:
            rule = f"must be within totalScale, {node.total_scale:g}, of 0"
            found.add(f"{path}.total", rule)
        placed[node.component] += max(node.replicas, 0)
    for component, replicas in placed.items():
        if replicas > wanted.get(component, 0):
            rule = f"places {replicas} of component {component!r}, {wanted.get(component, 0)} asked"
            found.add("placeReply.nodes", rule)


def numbered(question: EstimateRequest | PlaceRequest, request_id: str) -> ConnectResponse:
    """A peer's question under a number of our own."""
    asked = deepcopy(question)
    asked.request_id = request_id
    if isinstance(asked, PlaceRequest):
        return ConnectResponse(place_request=asked)
    return ConnectResponse(estimate_request=asked)


def resync(reason: str) -> ConnectResponse:
    """The agent is to send a whole report now."""
    return ConnectResponse(resync=Resync(reason=reason))


def goodbye(error: FederationError) -> ConnectResponse:
    """The stream ends, and dialling again is of no use."""
    return ConnectResponse(goodbye=Goodbye(reason=error.message))


def reconnect(error: Unavailable, after_seconds: float) -> ConnectResponse:
    """The stream ends; the agent is to dial again after a time of its choice up to that."""
    return ConnectResponse(reconnect=Reconnect(after_seconds=after_seconds, reason=error.message))


def traced(message: ConnectResponse) -> ConnectResponse:
    """A question, within the span of what it is asked for."""
    if (traceparent := spans.traceparent()) != "":
        asked = message.WhichOneof("message")
        getattr(message, asked or "").traceparent = traceparent
    return message
