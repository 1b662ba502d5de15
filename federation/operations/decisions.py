"""Operations on decisions: one, lists, traces, replays.

Must not decide anything: the use cases do.
"""

from __future__ import annotations

from dataclasses import replace

from federation.codec.decisions import (
    decision_to_message,
    listed_decision_message,
    outcomes_from_numbers,
)
from federation.codec.ranges import optional_seconds
from federation.codec.violations import Violations
from federation.model.errors import NotFound
from federation.operations.table import OperationCall, operation
from federation.rpc.pages import fitting, page_size_of, page_token, place_of
from federation.rpc.simulation_worker import beside_reports_question, replay_question
from federation.services.decision_ports import DecisionFilter
from federation.services.threads import ENCODING
from federation.services.values import DecisionRecord
from federation.v1 import scheduling_pb2 as messages

# A trace over fewer is written in less than 5 ms: not worth a thread.
CLUSTERS_PER_THREAD = 300


@operation("Scheduling/GetDecision")
async def get_decision(
    call: OperationCall, request: messages.GetDecisionRequest
) -> messages.GetDecisionResponse:
    record = await _visible_decision(call, request.id)
    # Clusters that the caller may not see stand among the others of a trace.
    sees_all = call.scope.sees_all_clusters
    decision = await with_trace(record) if sees_all else decision_to_message(record)
    return messages.GetDecisionResponse(decision=decision)


async def with_trace(record: DecisionRecord) -> messages.Decision:
    """Write a decision with its trace; over many clusters in a thread."""
    if len(record.decision.trace.clusters) < CLUSTERS_PER_THREAD:
        return decision_to_message(record, trace=True)
    return await ENCODING.run(decision_to_message, record, trace=True)


def _filter(
    request: messages.ListDecisionsRequest, violations: Violations
) -> tuple[messages.ListDecisionsRequest, DecisionFilter]:
    return request, DecisionFilter(
        namespace=request.namespace,
        name=request.name,
        cluster=request.cluster,
        outcomes=outcomes_from_numbers(request.outcomes, "outcomes", violations),
        since=optional_seconds(request, "since", "since", violations),
        until=optional_seconds(request, "until", "until", violations),
    )


@operation("Scheduling/ListDecisions", read=_filter)
async def list_decisions(
    call: OperationCall, filtered: tuple[messages.ListDecisionsRequest, DecisionFilter]
) -> messages.ListDecisionsResponse:
    request, decision_filter = filtered
    page = await call.services.history.list_decisions(
        replace(decision_filter, among=call.scope.namespaces),
        place_of(request.page_token),
        page_size_of(request.page_size),
    )
    decisions = await ENCODING.run(fitting, map(listed_decision_message, page.decisions))
    next_after = page.next_after
    if len(decisions) < len(page.decisions):
        next_after = page.decisions[len(decisions) - 1].place
    return messages.ListDecisionsResponse(
        decisions=decisions,
        next_page_token=page_token((str(next_after[0]), next_after[1])) if next_after else "",
    )


def _span(
    request: messages.ExportTraceRequest, violations: Violations
) -> tuple[str, DecisionFilter]:
    return request.page_token, DecisionFilter(
        since=optional_seconds(request, "since", "since", violations),
        until=optional_seconds(request, "until", "until", violations),
    )


@operation("Scheduling/ExportTrace", read=_span)
async def export_trace(
    call: OperationCall, span: tuple[str, DecisionFilter]
) -> messages.ExportTraceResponse:
    token, decision_filter = span
    piece = await call.services.history.trace_piece(decision_filter, place_of(token))
    after = piece.next_after
    return messages.ExportTraceResponse(
        content=piece.content,
        decisions=piece.decisions,
        next_page_token=page_token((str(after[0]), after[1])) if after else "",
    )


@operation("Scheduling/ReplayDecision")
async def replay_decision(
    call: OperationCall, request: messages.ReplayDecisionRequest
) -> messages.ReplayDecisionResponse:
    """Make a decision again in a process of its own. Raises what ``DecisionHistory`` raises."""
    history = call.services.history
    if call.scope.namespaces:
        await _visible_decision(call, request.id)
    if request.from_reports:
        reports = await history.report_replay_input(request.id)
        question = await ENCODING.run(beside_reports_question, reports)
    else:
        recorded = await history.recorded(request.id)
        question = await ENCODING.run(replay_question, recorded)
    answer = await call.services.ask_process(question)
    return messages.ReplayDecisionResponse.FromString(answer)


async def _visible_decision(call: OperationCall, decision_id: str) -> DecisionRecord:
    """Return a decision. Raises NotFound, also for one that the caller may not see."""
    record = await call.services.scheduling.get_decision(decision_id)
    if not call.scope.sees_namespace(record.namespace):
        raise NotFound(f"There is no decision {decision_id!r}.")
    return record
