"""The history of decisions, over the wire.

Must not decide anything: reads the message, calls the use case, writes the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from federation.codec.decisions import listed_decision_message, outcomes_from_numbers
from federation.codec.ranges import is_cluster_name, optional_seconds, required
from federation.codec.strict import refuse_nul
from federation.codec.violations import Violations
from federation.rpc.calls import Context, caller
from federation.rpc.pages import fitting, page_size_of, page_token, place_of
from federation.rpc.simulation_worker import beside_reports_question, replay_question
from federation.services.decision_ports import DecisionFilter
from federation.services.history import DecisionHistory
from federation.services.threads import ENCODING
from federation.v1 import scheduling_pb2 as messages

# Has a question answered by a process of its own, as bytes, or ends the call.
AskProcess: TypeAlias = Callable[[bytes, Context], Awaitable[bytes]]


class HistoryCalls:
    """The calls about the history of decisions; ``ask`` has a decision made again."""

    def __init__(self, history: DecisionHistory, ask: AskProcess) -> None:
        self._history = history
        self._ask = ask

    async def list_decisions(
        self, request: messages.ListDecisionsRequest
    ) -> messages.ListDecisionsResponse:
        """Raises InvalidRequest."""
        wanted, after = _filter(request), place_of(request.page_token)
        page = await self._history.list_decisions(wanted, after, page_size_of(request.page_size))
        decisions = await ENCODING.run(fitting, map(listed_decision_message, page.decisions))
        next_after = page.next_after
        if len(decisions) < len(page.decisions):
            next_after = page.decisions[len(decisions) - 1].place
        return messages.ListDecisionsResponse(
            decisions=decisions,
            next_page_token=page_token((str(next_after[0]), next_after[1])) if next_after else "",
        )

    async def export_trace(
        self, request: messages.ExportTraceRequest
    ) -> messages.ExportTraceResponse:
        """Raises InvalidRequest."""
        found = Violations()
        wanted = DecisionFilter(
            since=optional_seconds(request, "since", "since", found),
            until=optional_seconds(request, "until", "until", found),
        )
        found.check()
        piece = await self._history.trace_piece(wanted, place_of(request.page_token))
        after = piece.next_after
        return messages.ExportTraceResponse(
            content=piece.content,
            decisions=piece.decisions,
            next_page_token=page_token((str(after[0]), after[1])) if after else "",
        )

    async def replay_decision(
        self, request: messages.ReplayDecisionRequest, context: Context
    ) -> messages.ReplayDecisionResponse:
        """Raises InvalidRequest, and what ``DecisionHistory.recorded`` raises."""
        found = Violations()
        required(request.id, "id", found)
        refuse_nul(request, "", found)
        found.check()
        if request.from_reports:
            kept = await self._history.report_replay_input(request.id)
            question = await ENCODING.run(beside_reports_question, kept)
        else:
            recorded = await self._history.recorded(request.id)
            question = await ENCODING.run(replay_question, recorded)
        return messages.ReplayDecisionResponse.FromString(await self._ask(question, context))


def _filter(request: messages.ListDecisionsRequest) -> DecisionFilter:
    found = Violations()
    refuse_nul(request, "", found)
    if request.cluster and not is_cluster_name(request.cluster):
        found.add("cluster", f"{request.cluster[:64]!r} cannot be a cluster's name")
    wanted = DecisionFilter(
        namespace=request.namespace,
        among=caller().scope.namespaces,
        name=request.name,
        cluster=request.cluster,
        outcomes=outcomes_from_numbers(request.outcomes, "outcomes", found),
        since=optional_seconds(request, "since", "since", found),
        until=optional_seconds(request, "until", "until", found),
    )
    found.check()
    return wanted
