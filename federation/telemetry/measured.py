"""What is counted where, in one control plane.

Must not know how it is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Pool

from federation.agents.sessions import Sessions
from federation.model.waiting import WaitState
from federation.rpc.measures import CallMeasures
from federation.services.binding_ports import WaitTally
from federation.services.estimates.availability import Availability
from federation.services.failover.control import FailoverControl, FailoverOverview
from federation.services.fleet.conditions import Overcommitment
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal_ports import DutyFailure
from federation.services.members.event_loop_lag import LoopWatch
from federation.services.members.settling import Settling
from federation.services.pace import Shares
from federation.services.ports import Clock, Store
from federation.services.scheduling.measures import DecisionMeasures
from federation.services.waiting.keeper import QueueKeeper
from federation.services.workers import StandingProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The parts that count, and those that are looked at when somebody asks.

    ``certificates`` are files by what they are for, ``shares`` limits of callers by their names.
    """

    calls: CallMeasures
    shares: Mapping[str, Shares]
    decisions: DecisionMeasures
    availability: Availability
    estimating: StandingProcess | None
    keeper: QueueKeeper
    failover: FailoverControl
    fleet: FleetOwner
    following: Following
    sessions: Sessions
    settling: Settling
    overcommitment: Overcommitment
    loop_watch: LoopWatch
    pool: Pool
    store: Store
    certificates: Mapping[str, Path]
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the database says, the same to every control plane."""

    waiting: Mapping[WaitState, WaitTally]
    failover: FailoverOverview
    failing_duties: Sequence[DutyFailure]
    days_left: int
