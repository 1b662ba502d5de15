"""Who is connected, and questions to agents: asked by id, answered within a time or not at all.

Must not read from or write to the wire: ``conversation`` does, one per stream.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from federation.agents.messages import goodbye, reconnect, resync
from federation.agents.session import NOT_CONNECTED, Session
from federation.model.errors import Conflict, FederationError, Unavailable
from federation.model.node_plans import NodePlan, PlaceOrder
from federation.services.values import ExactQuestion

LEAST_SPREAD_SECONDS = 1.0
DIALS_PER_SECOND = 50.0


logger = logging.getLogger(__name__)


class Sessions:
    """The open streams, at most one per cluster.

    Implements the services' AgentGateway, AgentEstimates, AgentStreams and HeldStreams.
    """

    def __init__(self) -> None:
        self._current: dict[str, Session] = {}
        self._ended: dict[str, int] = {}

    def is_connected(self, cluster: str) -> bool:
        session = self._current.get(cluster)
        return session is not None and not session.ended.is_set()

    def sees_nodes(self, cluster: str) -> bool:
        """Whether the agent is connected here and sees its cluster's nodes."""
        return self.is_connected(cluster) and self._current[cluster].sees_nodes

    async def place(self, cluster: str, order: PlaceOrder, timeout_seconds: float) -> NodePlan:
        """Raises Unavailable (not connected, gone) or DeadlineMissed."""
        return await self.connected(cluster).place(order, timeout_seconds)

    async def estimate(
        self, cluster: str, question: ExactQuestion, timeout_seconds: float
    ) -> tuple[int, ...]:
        """Raises Unavailable (not connected, gone, no sense) or DeadlineMissed."""
        return await self.connected(cluster).estimate(question, timeout_seconds)

    def all(self) -> list[Session]:
        """The open streams as of now."""
        return list(self._current.values())

    def get(self, cluster: str) -> Session | None:
        return self._current.get(cluster)

    def dismiss(self, cluster: str, error: FederationError) -> None:
        """End the stream of a cluster's agent for good, telling it why, if there is one."""
        session = self._current.get(cluster)
        if session is not None:
            session.end(error, farewell=goodbye(error))

    def epochs(self) -> Mapping[str, int]:
        """The session of each cluster whose agent is connected here."""
        open_now = [session for session in self.all() if not session.ended.is_set()]
        return {session.cluster: session.epoch for session in open_now}

    def ended(self) -> Mapping[str, int]:
        """The last session of each cluster whose stream ended here and was not forgotten since."""
        return dict(self._ended)

    def forget(self, ended: Mapping[str, int]) -> None:
        """These were told of."""
        for cluster, epoch in ended.items():
            if self._ended.get(cluster) == epoch:
                del self._ended[cluster]

    def drop(self, cluster: str, error: FederationError) -> None:
        """End the stream of a cluster's agent, which has another one already."""
        session = self._current.get(cluster)
        if session is not None:
            session.end(error)

    def connected(self, cluster: str) -> Session:
        """The open stream of a cluster's agent. Raises Unavailable when there is none here."""
        session = self._current.get(cluster)
        if session is None or session.ended.is_set():
            raise Unavailable(
                f"the agent of cluster {cluster} is not connected", reason=NOT_CONNECTED
            )
        return session

    def refresh(self, cluster: str, reason: str) -> bool:
        """Ask a cluster's agent for a whole report now; whether one will come from here."""
        if not self.sees_nodes(cluster):
            return False
        self._current[cluster].send(resync(reason))
        return True

    def refresh_all(self) -> None:
        """Ask every agent for a report: those that are stored do not count any more."""
        for session in self.all():
            session.send(resync("the database went back to an earlier state"))

    def open(self, session: Session) -> None:
        """Make this the cluster's stream. The newer epoch wins; raises Conflict for an older one.

        The same agent dialling again takes over from a stream of its own that broke unnoticed.
        """
        before = self._current.get(session.cluster)
        if before is not None and before.epoch > session.epoch:
            raise _taken_over(session, before)
        self._current[session.cluster] = session
        if before is not None:
            error = _taken_over(before, session)
            before.end(error, farewell=goodbye(error) if before.epoch < session.epoch else None)

    def close(self, session: Session) -> bool:
        """Forget a stream; whether it still was its cluster's."""
        session.end()
        was_current = self._current.get(session.cluster) is session
        if was_current:
            del self._current[session.cluster]
            self._ended[session.cluster] = session.epoch
        return was_current

    def send_away(self, error: Unavailable) -> None:
        """End all streams; their agents dial again, spread over a time that grows with them."""
        after_seconds = max(LEAST_SPREAD_SECONDS, len(self._current) / DIALS_PER_SECOND)
        for session in self.all():
            session.end(error, farewell=reconnect(error, after_seconds))


def _taken_over(loser: Session, winner: Session) -> Conflict:
    return Conflict(
        f"another stream (epoch {winner.epoch}) has taken over cluster {loser.cluster} "
        f"from this one (epoch {loser.epoch})",
        reason="TAKEN_OVER",
    )
