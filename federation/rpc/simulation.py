"""Simulation: what would be decided on clusters that come with the request; and what-ifs.

Must not read a request here: its bytes go to a process of their own as they came, and the answer's
come back.
"""

from __future__ import annotations

import pickle
import sys
from functools import partial
from typing import Final

import grpc
import msgspec
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from federation.model.errors import PreconditionFailed
from federation.rpc.calls import Context, Handler
from federation.rpc.simulation_worker import Setup, simulation_question, what_if_question
from federation.rpc.status import EndedElsewhere
from federation.services.ports import Clock
from federation.services.threads import ENCODING
from federation.services.workers import AnswerKind, WorkerLimits, Workers
from federation.simulation.what_if_runs import RecentAnswer, RecentQuestion
from federation.v1.simulation_pb2 import DESCRIPTOR

# Others need the processor more, from the start: also while it is loaded.
_START: Final = "import os; os.nice(10); from federation.rpc.simulation_worker import main; main()"
PROGRAM: Final = (sys.executable, "-c", _START)
_ANSWERS: Final = msgspec.msgpack.Decoder(RecentAnswer)
(_SERVICE,) = DESCRIPTOR.services_by_name.values()


class SimulationServicer:
    """Implements federation.v1.Simulation, from bytes to bytes."""

    def __init__(self, setup: Setup, limits: WorkerLimits, clock: Clock) -> None:
        self._workers = Workers("simulation", PROGRAM, partial(_sendable, setup), limits)
        self._clock = clock

    async def Simulate(self, request: bytes, context: Context) -> bytes:
        return await self.ask(simulation_question(request, self._clock.now()))

    async def ask(self, question: bytes) -> bytes:
        """The answer of a process, which ends with the caller; a refusal ends the call."""
        answer = await self._workers.ask(question)
        if answer.kind is AnswerKind.REFUSAL:
            raise EndedElsewhere(rpc_status.to_status(Status.FromString(answer.body)))
        return answer.body

    async def what_if(self, asked: RecentQuestion) -> RecentAnswer:
        """What came of recorded decisions with a change, worked out by a process.

        Raises PreconditionFailed with what it refused, and what ``Workers.ask`` raises.
        """
        answer = await self._workers.ask(await ENCODING.run(what_if_question, asked))
        if answer.kind is AnswerKind.REFUSAL:
            raise PreconditionFailed(Status.FromString(answer.body).message)
        return _ANSWERS.decode(answer.body)

    async def close(self) -> None:
        await self._workers.close()


def _sendable(setup: Setup) -> bytes:
    """Raises PreconditionFailed where another process cannot be told of a plugin."""
    try:
        return pickle.dumps(setup)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PreconditionFailed(
            "A scheduler plugin cannot run in the processes that simulate: its function must be "
            f"one that a module has by name ({error}).",
            reason="PLUGIN_NOT_SENDABLE",
        ) from error


def add_simulation_to_server(servicer: SimulationServicer, server: grpc.aio.Server) -> None:
    """In place of the generated function, which would have requests decoded on the event loop."""
    handler: Handler = grpc.unary_unary_rpc_method_handler(servicer.Simulate)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_SERVICE.full_name, {"Simulate": handler}),)
    )
