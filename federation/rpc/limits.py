"""One table of what callers may have at once of this control plane, and who has how much of it.

Must not know what a call does, nor who may call: the gate does. Belongs to one event loop.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from federation.model.access import NO_LIMITS
from federation.model.errors import LimitExceeded
from federation.services.pace import Pace, Shares
from federation.services.values import Principal, PrincipalKind

# Paces of callers that have not called for longest are forgotten: they begin anew.
MAX_CALLERS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimit:
    """At most ``count`` of ``what`` at once.

    Of a limit that ``is_fair``, each key has at most half of what the others leave free. Otherwise
    each key has ``count`` for itself.
    """

    name: str
    count: int
    what: str
    is_fair: bool = True


# Each call is held in memory while it is served, watches included.
CALLS: Final = SharedLimit(name="calls", count=4_000, what="calls")
# Control planes ask each other for agents: users must not be in their way.
PEER_CALLS: Final = SharedLimit(name="peer_calls", count=4_000, what="calls of control planes")
CONNECTION: Final = SharedLimit(
    name="calls_of_a_connection",
    count=1_000,
    what="calls of one connection",
    is_fair=False,
)
# One in use, and others that end just now or broke unnoticed.
AGENT_STREAMS: Final = SharedLimit(
    name="streams_of_an_agent", count=4, what="streams of one agent", is_fair=False
)
# One process works, and eight questions wait for it.
SIMULATIONS: Final = SharedLimit(name="simulations", count=9, what="simulations and replays")
# One thread works, and twenty requests wait for it.
SCORES: Final = SharedLimit(name="scores", count=21, what="requests to score nodes")
# Two threads write, and a hundred answers wait for them.
LISTS: Final = SharedLimit(name="lists", count=100, what="lists and large answers")
ESTIMATES: Final = SharedLimit(name="estimates", count=1_000, what="estimates")
# One thread draws, and fifty pages wait for it.
VIEWS: Final = SharedLimit(name="views", count=50, what="pages")
LIMITS: Final = (
    *(CALLS, PEER_CALLS, CONNECTION, AGENT_STREAMS),
    *(SIMULATIONS, SCORES, LISTS, ESTIMATES, VIEWS),
)
# Limits of methods beyond those that hold for all.
OF_METHODS: Final[Mapping[str, SharedLimit]] = {
    f"/federation.v1.{name}": limit
    for limit, names in (
        (SIMULATIONS, ("Simulation/Simulate", "Scheduling/ReplayDecision")),
        (SCORES, ("Scoring/ScoreNodes",)),
        (ESTIMATES, ("Estimates/EstimateReplicas", "Estimates/EstimateComponentSets")),
        (
            LISTS,
            (
                *("Scheduling/ListBindings", "Scheduling/ListQueue", "Scheduling/ListDecisions"),
                *("Scheduling/GetDecision", "Scheduling/ExportTrace", "Rebalance/GetPlan"),
            ),
        ),
    )
    for name in names
}


class CallerShares:
    """Counts what callers have, by the table, and by the limits that a token has of its own.

    ``counts`` replace those of the table by the names of limits.
    """

    def __init__(
        self,
        counts: Mapping[str, int] = MappingProxyType({}),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._by_name = {
            limit.name: Shares(
                counts.get(limit.name, limit.count), limit.what, is_fair=limit.is_fair
            )
            for limit in LIMITS
        }
        self._at_once = OwnCalls()
        self._paces: OrderedDict[tuple[str, int], Pace] = OrderedDict()

    @property
    def by_name(self) -> Mapping[str, Shares]:
        """The shares of each limit of the table."""
        return self._by_name

    @contextmanager
    def call(
        self, method: str, principal: Principal, peer: str, also: SharedLimit | None = None
    ) -> Iterator[None]:
        """Hold all that a call needs while it is served. Raises LimitExceeded."""
        taken = self.take(method, principal, peer, also)
        try:
            yield
        finally:
            give_back(taken)

    def take(
        self, method: str, principal: Principal, peer: str, also: SharedLimit | None = None
    ) -> list[tuple[Shares | OwnCalls, str]]:
        """Take all that a call needs: nothing if anything is used up. Raises LimitExceeded."""
        taken: list[tuple[Shares | OwnCalls, str]] = []
        try:
            for limit, key in _needs(method, principal, peer, also):
                shares = self._by_name[limit.name]
                shares.take(key)
                taken.append((shares, key))
            if principal.limits is not NO_LIMITS:
                if principal.limits.calls_per_second:
                    self._spend(principal, principal.limits.calls_per_second)
                if principal.limits.calls_at_once:
                    self._at_once.take(principal)
                    taken.append((self._at_once, principal.credential_id))
        except LimitExceeded:
            give_back(taken)
            raise
        return taken

    def _spend(self, principal: Principal, per_second: int) -> None:
        now, key = self._clock(), (principal.credential_id, per_second)
        pace = self._paces.get(key)
        if pace is None:
            pace = self._paces[key] = Pace(at_once=per_second, per_second=per_second, now=now)
            if len(self._paces) > MAX_CALLERS:
                self._paces.popitem(last=False)
        self._paces.move_to_end(key)
        if pace.left_at(now) < 1.0:
            text = f"the {principal} may make {per_second} calls a second"
            raise LimitExceeded(f"{text}; try again later", reason="CALLS_PER_SECOND")
        pace.spend(1.0, now)


class OwnCalls:
    """The calls at once of tokens that have a limit of their own."""

    def __init__(self) -> None:
        self._by_credential: Counter[str] = Counter()

    def take(self, principal: Principal) -> None:
        """Raises LimitExceeded."""
        limit, key = principal.limits.calls_at_once, principal.credential_id
        if self._by_credential[key] >= limit:
            text = f"the {principal} may have {limit} calls at once"
            raise LimitExceeded(f"{text}; try again when one has ended", reason="CALLS_AT_ONCE")
        self._by_credential[key] += 1

    def give_back(self, credential_id: str) -> None:
        self._by_credential[credential_id] -= 1
        if not self._by_credential[credential_id]:
            del self._by_credential[credential_id]


def give_back(taken: Sequence[tuple[Shares | OwnCalls, str]]) -> None:
    """Give back what a call has taken."""
    for shares, key in taken:
        shares.give_back(key)


def _needs(
    method: str, principal: Principal, peer: str, also: SharedLimit | None
) -> Iterator[tuple[SharedLimit, str]]:
    if principal.kind is PrincipalKind.AGENT:
        yield AGENT_STREAMS, principal.cluster
        return
    actor = principal.actor
    yield (PEER_CALLS if principal.kind is PrincipalKind.REPLICA else CALLS), actor
    yield CONNECTION, peer
    for limit in (OF_METHODS.get(method), also):
        if limit is not None:
            yield limit, actor
