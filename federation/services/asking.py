"""Asks many agents one question at once; each answers for its own cluster or costs it one level.

Must not let one agent delay or spoil the answer of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from federation.model.errors import FederationError
from federation.model.estimate import Bound, LevelAnswer, Source
from federation.services.ports import AgentEstimates
from federation.services.values import ExactQuestion


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactAnswers:
    """What agents said: a row of numbers a question (axis s) for the clusters asked (axis c)."""

    replicas_sc: npt.NDArray[np.int64]
    answered_c: npt.NDArray[np.bool_]
    reasons: dict[int, str]

    def level(self, position: int) -> LevelAnswer:
        """The level ``exact`` for one of the questions."""
        return LevelAnswer(
            source=Source.EXACT,
            replicas_c=self.replicas_sc[position],
            answered_c=self.answered_c,
            bound_c=np.full(len(self.answered_c), Bound.EXACT, dtype=np.int8),
            reasons=self.reasons,
        )


async def ask_agents(
    agents: AgentEstimates,
    clusters: Sequence[str],
    question: ExactQuestion,
    timeout_seconds: float,
) -> ExactAnswers:
    """All agents at once; takes no longer than ``timeout_seconds``, whoever is silent."""
    answers = await asyncio.gather(
        *(_ask(agents, cluster, question, timeout_seconds) for cluster in clusters)
    )
    asked = 1 if question.components else len(question.shapes)
    replicas_sc = np.zeros((asked, len(clusters)), dtype=np.int64)
    reasons = {}
    for position, answer in enumerate(answers):
        if isinstance(answer, str):
            reasons[position] = answer
        else:
            replicas_sc[:, position] = answer
    answered_c = np.array([not isinstance(answer, str) for answer in answers], dtype=np.bool_)
    return ExactAnswers(replicas_sc=replicas_sc, answered_c=answered_c, reasons=reasons)


async def _ask(
    agents: AgentEstimates, cluster: str, question: ExactQuestion, timeout_seconds: float
) -> tuple[int, ...] | str:
    """The numbers, or why there are none."""
    if not agents.is_connected(cluster):
        return "the agent is not connected"
    try:
        return await agents.estimate(cluster, question, timeout_seconds)
    except FederationError as error:
        return error.message
