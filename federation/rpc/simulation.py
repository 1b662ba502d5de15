"""Simulation: what would be decided on clusters that come with the request.

Must not know the fleet or the store: reads the message, runs the cycle, writes the answer.
"""

from __future__ import annotations

import asyncio

from federation.codec.decisions import decision_to_message
from federation.codec.simulations import SimulationRequest, simulation_from_message
from federation.model.errors import LimitExceeded
from federation.rpc.failures import plugin_failures_logged
from federation.rpc.interceptors import Context
from federation.scheduler.profile import Profiles
from federation.scheduler.simulation import Simulation, check_bindings
from federation.services.ports import Clock
from federation.services.values import DecisionRecord
from federation.v1 import simulation_pb2 as messages
from federation.v1.simulation_pb2_grpc import SimulationServicer as Servicer

# What clients take by default, and a margin.
MAX_ANSWER_BYTES = 4_000_000


class SimulationServicer(Servicer):
    """Implements federation.v1.Simulation."""

    def __init__(self, profiles: Profiles, clock: Clock) -> None:
        self._profiles = profiles
        self._clock = clock

    async def Simulate(
        self, request: messages.SimulateRequest, context: Context
    ) -> messages.SimulateResponse:
        asked = simulation_from_message(request, self._clock.now())
        with plugin_failures_logged():
            # The clusters come from the caller, as many as they like: not on the loop.
            answer = await asyncio.to_thread(self._simulated, asked, self._clock.now())
        size = answer.ByteSize()
        if size > MAX_ANSWER_BYTES:
            raise LimitExceeded(
                f"the answer has {size} bytes, and {MAX_ANSWER_BYTES} travel at once: "
                "simulate fewer bindings at a time, or without traces"
            )
        return answer

    def _simulated(self, asked: SimulationRequest, now: float) -> messages.SimulateResponse:
        check_bindings(asked.bindings, self._profiles)
        simulation = Simulation(asked.states, asked.options, now=now, profiles=self._profiles)
        records = (
            DecisionRecord(
                id="",
                namespace=binding.namespace,
                name=binding.name,
                binding_generation=binding.generation,
                created_at=now,
                decision=simulation.decide(binding),
            )
            for _, binding in asked.bindings
        )
        return messages.SimulateResponse(
            decisions=[
                decision_to_message(record, trace=asked.include_traces) for record in records
            ]
        )
