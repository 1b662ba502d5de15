"""The operation by which another control plane asks an agent of ours.

Must not know the question: it hands over the message and the time that is left.
"""

from __future__ import annotations

from typing import Final

from federation.operations.table import OperationCall, operation
from federation.v1.peers_pb2 import AskAgentRequest, AskAgentResponse

# For a peer that names no deadline; all of ours do.
MAX_SECONDS: Final = 10.0


@operation("Peers/AskAgent", checked=False)
async def ask_agent(call: OperationCall, request: AskAgentRequest) -> AskAgentResponse:
    seconds = call.seconds_left
    limit = MAX_SECONDS if seconds is None else max(0.0, seconds)
    return await call.services.ask_agent(request, limit)
