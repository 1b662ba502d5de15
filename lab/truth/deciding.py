"""Who decides where a study's workloads go: the control plane, or estimates without a memory.

Must not make pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple, Protocol

import numpy as np

from federation.client.api import Client
from federation.codec.bindings import binding_to_message
from federation.model.cluster import Cluster
from federation.model.errors import PreconditionFailed
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import Binding, Certificate
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Outcome
from federation.scheduler.fleet import Fleet
from federation.v1.estimates_pb2 import ESTIMATE_SOURCE_EXACT
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, ScheduleResponse
from lab.truth.plans import Answered
from lab.truth.streams import Wanted


class Weakened(NamedTuple):
    """Replicas whose promise is worth less than was asked for, and why."""

    replicas: int
    note: str


class Decider(Protocol):
    async def decide(self, wanted: Wanted) -> tuple[Answered, str]:
        """The answer, and the decision's name."""
        ...


class Reserving:
    """Control planes decide, and keep what they promised: each the workload that comes next."""

    def __init__(self, clients: Sequence[Client], certificate: Certificate | None) -> None:
        self._client = clients[0]
        self._turns = cycle(clients)
        self._certificate = certificate
        # By workload, until they are committed.
        self._previews: dict[str, str] = {}

    async def preview(self, workloads: Sequence[Wanted]) -> None:
        """Show what would be decided about all of them, for ``decide`` to commit."""
        answers = await asyncio.gather(
            *(
                self._client.preview(
                    binding_to_message(wanted.binding(self._certificate)), wait=False
                )
                for wanted in workloads
            )
        )
        for wanted, answer in zip(workloads, answers, strict=True):
            if answer.preview_token and answer.decision.outcome == OUTCOME_SCHEDULED:
                self._previews[wanted.name] = answer.preview_token

    async def decide(self, wanted: Wanted) -> tuple[Answered, str]:
        answer = await self._committed(wanted)
        if answer is None:
            message = binding_to_message(wanted.binding(self._certificate))
            answer = await next(self._turns).schedule(message, wait=False)
        decision = answer.decision
        shares = {}
        if decision.outcome == OUTCOME_SCHEDULED:
            shares = {each.name: each.replicas for each in decision.clusters if each.replicas}
        return Answered(wanted=wanted, shares=shares), decision.id

    async def _committed(self, wanted: Wanted) -> ScheduleResponse | None:
        """The preview, committed; None where there is none, or it is stale."""
        token = self._previews.pop(wanted.name, None)
        if token is None:
            return None
        try:
            return await self._client.commit_preview(token)
        except PreconditionFailed:
            return None

    async def weakened(self, answered: Sequence[Answered]) -> dict[tuple[str, str], Weakened]:
        """What is promised as less than was asked for, by member and workload."""
        found: dict[tuple[str, str], Weakened] = {}
        for each in answered:
            if each.shares and self._certificate is not None:
                stored = await self._client.get_binding(
                    each.wanted.binding(None).namespace, each.wanted.name
                )
                notes = {told.cluster: told.note for told in stored.decision.promises}
                found |= {
                    (reservation.cluster, each.wanted.name): Weakened(
                        replicas=reservation.replicas, note=notes.get(reservation.cluster, "")
                    )
                    for reservation in stored.reservations
                    if reservation.certificate != self._certificate
                }
        return found


class Unreserved:
    """Exact estimates of this moment divide a workload; nobody remembers what was decided.

    As schedulers over clusters do that ask an accurate estimator for every workload anew.
    """

    def __init__(self, client: Client, members: Sequence[str]) -> None:
        self._client = client
        self._fleet = Fleet.of(Cluster(name=name) for name in members)

    async def decide(self, wanted: Wanted) -> tuple[Answered, str]:
        binding = wanted.binding(None)
        asked = binding_to_message(binding).spec.replica_requirements
        table = await self._client.estimate(
            [asked], clusters=self._fleet.names, highest_source=ESTIMATE_SOURCE_EXACT
        )
        (replicas,) = table.replicas
        shares = shares_of(binding, self._fleet, [each or 0 for each in replicas])
        return Answered(wanted=wanted, shares=shares), "none"


def shares_of(binding: Binding, fleet: Fleet, room: Sequence[int]) -> dict[str, int]:
    """As it is divided over members with room for so many; empty where it is not."""
    size = len(fleet.names)
    estimates = Estimates(
        replicas_c=np.array(room, dtype=np.int64),
        source_c=np.full(size, Source.EXACT, dtype=np.int8),
        bound_c=np.full(size, Bound.EXACT, dtype=np.int8),
        reasons={},
    )
    decision = schedule(binding, fleet, estimates, now=0.0)
    if decision.outcome is not Outcome.SCHEDULED:
        return {}
    return {each.name: each.replicas for each in decision.clusters if each.replicas}
