"""Messages of the stream and the values of the agent.

Must not act on a message. Raises InvalidRequest for messages that break a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Final

from estimator.agent.agent import Rhythm
from estimator.sight import Visibility
from federation.codec.echoes import put_lost_plans
from federation.codec.models import read_model
from federation.codec.reports import report_to_message
from federation.codec.requirements import requirements_from_message
from federation.codec.timestamps import timestamp_from_seconds
from federation.codec.violations import Violations
from federation.model.cluster import CapacityReport
from federation.model.grades import ResourceModel
from federation.model.node_plans import LostPlan, NodePlan, PlaceOrder, ShareOrder
from federation.runtime import spans
from federation.runtime.log_fields import working_on
from federation.runtime.spans import UNTOLD, Span, SpanSide
from federation.v1.agents_pb2 import (
    ConnectRequest,
    CredentialStored,
    EstimateRequest,
    Heartbeat,
    Hello,
    NodeShare,
    PlaceReply,
    PlaceRequest,
    Sight,
    Welcome,
)
from federation.v1.resource_pb2 import ApiEnablement, ApiResource

# No pace a control plane may ask for is faster or slower than this.
MIN_INTERVAL_SECONDS: Final = 0.05
MAX_INTERVAL_SECONDS: Final = 3600.0
MAX_WHY_CHARACTERS: Final = 500


def rhythm_from_welcome(welcome: Welcome) -> Rhythm:
    """The model to grade by, and the pace."""
    model = ResourceModel()
    if welcome.resource_models:
        violations = Violations()
        model = read_model(welcome.resource_models, "welcome.resourceModels", violations)
        violations.check()
    return Rhythm(
        model=model,
        model_hash=welcome.model_hash,
        heartbeat_seconds=_interval(welcome.heartbeat_seconds),
        report_seconds=_interval(welcome.report_seconds),
    )


def _interval(seconds: float) -> float:
    return max(MIN_INTERVAL_SECONDS, min(seconds, MAX_INTERVAL_SECONDS))


@contextmanager
def asked_for(what: str, question: PlaceRequest | EstimateRequest) -> Iterator[None]:
    """While a question is answered, within the span of who asks, where that is traced; lines of the
    log name the decision that it is asked for.
    """
    span: AbstractContextManager[Span] = UNTOLD
    if question.traceparent:
        span = spans.span(f"agent {what}", SpanSide.CONSUMER, question.traceparent)
    with ExitStack() as stack:
        stack.enter_context(span)
        if isinstance(question, PlaceRequest):
            about = working_on(decision=question.decision_id, binding=question.binding)
            stack.enter_context(about)
        yield


def hello_message(cluster: str, hello: Hello) -> ConnectRequest:
    return ConnectRequest(cluster=cluster, hello=hello)


def sight_message(view: Visibility) -> Sight:
    return Sight(
        picture_age_seconds=view.age_seconds,
        blind=view.is_blind,
        message=view.why[:MAX_WHY_CHARACTERS] if view.is_blind else "",
        skipped_objects=view.skipped_objects,
    )


def report_message(
    cluster: str, report: CapacityReport, view: Visibility, lost: Iterable[LostPlan] = ()
) -> ConnectRequest:
    message = report_to_message(report)
    put_lost_plans(lost, message)
    message.sight.CopyFrom(sight_message(view))
    return ConnectRequest(cluster=cluster, report=message)


def heartbeat_message(cluster: str, sent: CapacityReport, view: Visibility) -> ConnectRequest:
    """``sent`` is the newest report, as of the time it was last known to be true."""
    return ConnectRequest(
        cluster=cluster,
        heartbeat=Heartbeat(
            agent_time=timestamp_from_seconds(sent.snapshot_time),
            sequence=sent.sequence,
            content_hash=sent.content_hash,
            sight=sight_message(view),
        ),
    )


def first_heartbeat_message(cluster: str, now: float) -> ConnectRequest:
    """A heartbeat of an agent that has nothing to report yet."""
    heartbeat = Heartbeat(agent_time=timestamp_from_seconds(now))
    return ConnectRequest(cluster=cluster, heartbeat=heartbeat)


def order_from_message(request: PlaceRequest) -> PlaceOrder:
    return PlaceOrder(
        decision_id=request.decision_id,
        binding_key=request.binding,
        shares=tuple(
            ShareOrder(
                component=share.component,
                replicas=max(0, share.replicas),
                requirements=requirements_from_message(
                    share.replica_requirements, f"shares[{position}].replicaRequirements"
                ),
            )
            for position, share in enumerate(request.shares)
        ),
        planned=request.planned,
    )


def stored_message(cluster: str, credential: str) -> ConnectRequest:
    """Say that a credential is stored, without saying the credential."""
    return ConnectRequest(
        cluster=cluster,
        credential_stored=CredentialStored(credential_id=credential.partition(".")[0]),
    )


def enablement_messages(pairs: Iterable[tuple[str, str]]) -> list[ApiEnablement]:
    """(groupVersion, kind) pairs by group and version, in order."""
    ordered = sorted(pairs)
    return [
        ApiEnablement(
            group_version=group_version, resources=[ApiResource(kind=kind) for _, kind in group]
        )
        for group_version, group in groupby(ordered, key=itemgetter(0))
    ]


def place_reply(request_id: str, plan: NodePlan) -> PlaceReply:
    return PlaceReply(
        request_id=request_id,
        nodes=[
            NodeShare(
                node=share.node,
                component=share.component,
                replicas=share.replicas,
                score=round(100 * max(0.0, share.score) / share.scale) if share.scale else 0,
                total=share.score,
                total_scale=share.scale,
            )
            for share in plan.nodes
        ],
        unplaced=plan.unplaced,
        message=plan.message,
        strategy=plan.strategy,
        claimed=plan.claimed,
    )


def refused_plan(request: PlaceRequest, why: str) -> NodePlan:
    """Nothing placed, because the question itself is wrong."""
    return NodePlan(unplaced=sum(max(0, share.replicas) for share in request.shares), message=why)
