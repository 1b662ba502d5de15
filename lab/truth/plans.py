"""What a study is to do. Must not do it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from federation.model.placement import Certificate
from lab.truth.streams import Stream


class Line(StrEnum):
    """A line of the table: what is asked for, and who places."""

    CAREFUL = "careful"
    STRICT = "strict"
    BINDER = "planned by binder"
    EXTENDER = "planned by extender"
    NO_RESERVATION = "no reservation"

    @property
    def certificate(self) -> Certificate | None:
        return _CERTIFICATES[self]


_CERTIFICATES = {
    Line.CAREFUL: Certificate.CAREFUL,
    Line.STRICT: Certificate.STRICT,
    Line.BINDER: Certificate.PLANNED,
    Line.EXTENDER: Certificate.PLANNED,
    Line.NO_RESERVATION: None,
}


# Callers ask for a few workloads at once, then pause.
AT_ONCE = (1, 20)
PAUSE_SECONDS = 0.5
# How much later than its decision a pod is made; shuffled ones at any time until then.
MAKING_SECONDS = 2.0
SHUFFLED_SECONDS = 15.0
# How soon a pod is deleted that a scheduler is being asked about.
DELETED_SECONDS = 0.05
REMADE_ONE_IN = 20
# How long until a pod without a node surely was tried again. The simulated scheduler backs off for
# ten seconds at most; real ones of some releases look at what found no node, or whose extender
# failed, only after sixty.
SIMULATED_PATIENCE, REAL_PATIENCE = 15.0, 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. ``foreign`` is how many pods come and go that nobody decides anything about.

    ``deleted`` is how many others are deleted while a scheduler asks about them. With any, one
    promised pod of ``REMADE_ONE_IN`` is deleted in the same way and made again.
    ``kills`` is how often an agent is killed, and with it its extender or binder. With ``burst``
    all is asked for at once; ``shuffled`` pods are made in any order. Pods are left pending when
    for ``quiet_seconds`` none has found a node. With ``previewed`` what is asked for at once is
    previewed first, all of it, and then committed; it is shared among so many ``planes``.
    ``programs`` is the folder with a real kube-scheduler, None: the simulated one.
    """

    line: Line
    seed: int
    stream: Stream = Stream.PLAIN
    bindings: int = 200
    nodes: tuple[int, ...] = (54, 58)
    foreign: int = 0
    deleted: int = 0
    kills: int = 0
    burst: bool = False
    shuffled: bool = False
    previewed: bool = False
    planes: int = 1
    quiet_seconds: float = SIMULATED_PATIENCE
    programs: Path | None = None
