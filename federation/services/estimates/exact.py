"""Asks many agents one question at once; each answers for its own cluster or costs it one level.

Must not let one agent delay or spoil the answer of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.model.errors import FederationError
from federation.model.estimate import Bound, LevelAnswer, Source
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason, Text
from federation.model.reservations import Outstanding
from federation.model.workload import Component
from federation.services.agent_ports import AgentEstimates
from federation.services.fleet.known_estimates import shape_key
from federation.services.values import ExactQuestion

NOTHING: Final[Mapping[str, Sequence[Outstanding]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactAnswers:
    """What agents said: a row of numbers a question (axis s) for the clusters asked (axis c).

    Where something is promised whose pods are on no node yet, ``beside_promises_c``, an agent puts
    it on the first nodes with room: others may choose other nodes, and nothing is proven.
    """

    replicas_sc: npt.NDArray[np.int64]
    answered_c: npt.NDArray[np.bool_]
    beside_promises_c: npt.NDArray[np.bool_]
    reasons: dict[int, Reason]

    def level(self, position: int) -> LevelAnswer:
        """The level ``exact`` for one of the questions."""
        return LevelAnswer(
            source=Source.EXACT,
            replicas_c=self.replicas_sc[position],
            answered_c=self.answered_c,
            bound_c=np.where(self.beside_promises_c, np.int8(Bound.NONE), np.int8(Bound.EXACT)),
            reasons=self.reasons,
        )


async def ask_agents(
    agents: AgentEstimates,
    clusters: Sequence[str],
    question: ExactQuestion,
    timeout_seconds: float,
    outstanding: Mapping[str, Sequence[Outstanding]] = NOTHING,
) -> ExactAnswers:
    """All agents at once; takes no longer than ``timeout_seconds``, whoever is silent.

    What is ``outstanding`` in a cluster comes first there.
    """
    questions = [_beside(question, outstanding.get(each, ())) for each in clusters]
    answers = await asyncio.gather(
        *(
            _ask(agents, cluster, each, timeout_seconds)
            for cluster, each in zip(clusters, questions, strict=True)
        )
    )
    asked = 1 if question.components else len(question.shapes)
    replicas_sc = np.zeros((asked, len(clusters)), dtype=np.int64)
    reasons: dict[int, Reason] = {}
    for position, answer in enumerate(answers):
        if isinstance(answer, Reason):
            reasons[position] = answer
            continue
        replicas_sc[:, position] = answer
        if assumed := questions[position].assumed:
            waiting = sum(component.replicas for each in assumed for component in each)
            reasons[position] = Reason.of(ReasonCode.COUNTED_BESIDE_PROMISES, Amount(waiting))
    return ExactAnswers(
        replicas_sc=replicas_sc,
        answered_c=np.array([not isinstance(answer, Reason) for answer in answers], dtype=np.bool_),
        beside_promises_c=np.array([bool(each.assumed) for each in questions], dtype=np.bool_),
        reasons=reasons,
    )


def _beside(question: ExactQuestion, outstanding: Sequence[Outstanding]) -> ExactQuestion:
    """The question with what is outstanding assumed: that is not on any node yet."""
    if not outstanding:
        return question
    alike: dict[Hashable, Component] = {}
    for each in outstanding:
        key = shape_key(each.requirements)
        before = alike[key].replicas if key in alike else 0
        alike[key] = Component(
            name="outstanding", replicas=before + each.to_pack, requirements=each.requirements
        )
    assumed = tuple((component,) for component in alike.values() if component.replicas)
    return replace(question, assumed=assumed)


async def _ask(
    agents: AgentEstimates, cluster: str, question: ExactQuestion, timeout_seconds: float
) -> tuple[int, ...] | Reason:
    """The numbers, or why there are none."""
    if not agents.sees_nodes(cluster):
        return Reason(ReasonCode.NO_AGENT)
    try:
        return await agents.estimate(cluster, question, timeout_seconds)
    except FederationError as error:
        return Reason.of(ReasonCode.ERROR_TEXT, Text(error.message))
