"""What-ifs on the page: what the decisions of the last hours would have been with a change.

Must not play anything here: a process of its own does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request

from federation.history.trace_files import TraceChunk
from federation.model.access import Scope
from federation.model.errors import FederationError, InvalidRequest
from federation.services.decision_ports import DecisionFilter
from federation.services.history import DecisionHistory
from federation.simulation.what_if_runs import RecentQuestion
from federation.web.ui.use_cases import UseCases
from federation.web.ui.views import Page

HOURS: Final = ("1", "6", "24", "168")
HOUR_SECONDS: Final = 3600
# Pieces of a trace of at most three megabytes each: so much is played while somebody waits.
MOST_CHUNKS: Final = 4
MOST_NAMES: Final = 100


class WhatIfViews:
    """The form, and its answer: for callers who may export traces, as names of all are in it."""

    def __init__(self, use_cases: UseCases) -> None:
        self._history = use_cases.services.history
        self._play = use_cases.what_if
        self._clock = use_cases.services.clock

    async def form(self, _: Request, __: Scope) -> Page:
        return _page(asked=dict.fromkeys(("without", "cordoned", "policies"), ""))

    async def play(self, fields: Mapping[str, str], _: Scope) -> Page:
        asked = {name: fields.get(name, "") for name in ("without", "cordoned", "policies")}
        hours = fields.get("hours", HOURS[0])
        try:
            without, cordoned = (_names_in(asked, name) for name in ("without", "cordoned"))
            if hours not in HOURS:
                raise InvalidRequest.of("hours", f"must be one of {', '.join(HOURS)}")
            since = self._clock.now() - int(hours) * HOUR_SECONDS
            chunks, is_all = await _newest(self._history, since)
            question = RecentQuestion(
                without=without,
                cordoned=cordoned,
                policies=asked["policies"].strip(),
                chunks=tuple(chunks),
            )
            answer = await self._play(question)
        except FederationError as refused:
            return _page(asked=asked, hours=hours, error=refused, status=422)
        return _page(asked=asked, hours=hours, answer=answer, is_all=is_all)


def _page(*, status: int = 200, **values: Any) -> Page:
    nothing = {"answer": None, "error": None, "is_all": True, "hours": HOURS[0]}
    return Page(
        template="what_if",
        title="What if",
        values={**nothing, **values, "spans": HOURS},
        is_live=False,
        has_forms=True,
        status=status,
    )


async def _newest(history: DecisionHistory, since: float) -> tuple[list[TraceChunk], bool]:
    """The decisions from then on, and whether these are all."""
    chunks: list[TraceChunk] = []
    wanted, after = DecisionFilter(since=since), None
    while len(chunks) < MOST_CHUNKS:
        chunk = await history.trace_chunk(wanted, after)
        if not chunk.decisions:
            return chunks, True
        chunks.append(chunk)
        after = chunk.decisions[-1].at, chunk.decisions[-1].id
    return chunks, False


def _names_in(asked: Mapping[str, str], field: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(asked[field].replace(",", " ").split()))
    if len(names) > MOST_NAMES:
        raise InvalidRequest.of(field, f"must be at most {MOST_NAMES} clusters")
    return names
