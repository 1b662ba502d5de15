"""What was worked out of a fleet's rooms for bindings that ask the same, until the rooms change.

Must not promise anything.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from federation.capacity.ledger import ClusterLedger
from federation.capacity.reserve import FleetRooms, PackedRooms
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Certificate
from federation.model.reasons import Reason
from federation.scheduler.decision import Decision
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.promisable import looked_again
from federation.services.fleet.snapshot import OutstandingByCluster

# Of all answers of one kind, in 8 to 10 bytes each; and so many answers in any fleet.
MAX_NUMBERS: Final = 2_000_000
MIN_ANSWERS: Final = 64

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Memo(dict[Key, Answer]):
    """Answers about a fleet; the oldest is forgotten where there are too many.

    An answer has some numbers for each cluster: the larger the fleet, the fewer are kept.
    """

    def __init__(self, clusters: int) -> None:
        super().__init__()
        self.max_answers = max(MIN_ANSWERS, MAX_NUMBERS // max(clusters, 1))

    def __setitem__(self, key: Key, answer: Answer) -> None:
        if len(self) >= self.max_answers and key not in self:
            del self[next(iter(self))]
        super().__setitem__(key, answer)


class KnownRefusal(NamedTuple):
    """A decision by which a binding finds no room, with its whole reason, and what it was made on.

    ``unseen_in`` are clusters where reports did not show all that was ``outstanding``.
    """

    available: Estimates
    outstanding: OutstandingByCluster
    inputs: DecisionInputs
    decision: Decision
    unseen_in: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class KnownAnswers:
    """By question what is ``available`` in these rooms, and what is ``scarce``; ``seen_again`` is
    what second looks at what is available found for so many replicas. ``beside_own`` is what is
    available to one that is somewhere, by these ledgers. ``refusals`` are of bindings that were
    nowhere; ``lessened`` are rooms once some have lost some of theirs. Belongs to one thread.
    """

    rooms: FleetRooms
    available: Memo[Hashable, Estimates]
    beside_own: Memo[Hashable, tuple[Sequence[ClusterLedger], Estimates]]
    seen_again: Memo[Hashable, Estimates | None]
    refusals: Memo[Hashable, KnownRefusal]
    scarce: dict[Certificate | None, Memo[Hashable, Reason]] = field(default_factory=dict)
    lessened: PackedRooms = field(default_factory=dict)

    @classmethod
    def about(cls, rooms: FleetRooms) -> KnownAnswers:
        """None yet."""
        clusters = len(rooms.sites)
        return cls(rooms, Memo(clusters), Memo(clusters), Memo(clusters), Memo(clusters))

    def scarcities(self, asked: Certificate | None) -> Memo[Hashable, Reason]:
        """What was found to be scarce, by question."""
        if asked not in self.scarce:
            self.scarce[asked] = Memo(len(self.rooms.sites))
        return self.scarce[asked]

    def available_anew(
        self,
        binding: Binding,
        asked: Certificate | None,
        work_out: Callable[[Binding, Certificate | None], Estimates],
        *,
        leaves_large: bool,
    ) -> Estimates:
        """What is available to one that is nowhere, worked out once."""
        question = question_of(binding, asked)
        key = question if leaves_large else (question, leaves_large)
        known = self.available.get(key)
        if known is None:
            known = self.available[key] = work_out(binding, asked)
        return known

    def available_beside_own(
        self,
        binding: Binding,
        asked: Certificate | None,
        ledgers: Sequence[ClusterLedger],
        work_out: Callable[[Binding, Certificate | None], Estimates],
    ) -> Estimates:
        """What is available to one that is somewhere, worked out once by these ledgers."""
        question = question_of(binding, asked), binding.key, binding.clusters
        known = self.beside_own.get(question)
        if known is None or known[0] is not ledgers:
            known = self.beside_own[question] = ledgers, work_out(binding, asked)
        return known[1]

    def looked_again(
        self, binding: Binding, asked: Certificate | None, available: Estimates
    ) -> Estimates | None:
        """``promisable.looked_again``, once for all that ask the same and are told the same."""
        question = question_of(binding, asked)
        if self.available.get(question) is not available:
            return looked_again(self.rooms, binding, asked, available)
        wanted = question, binding.replicas
        if wanted not in self.seen_again:
            self.seen_again[wanted] = looked_again(self.rooms, binding, asked, available)
        return self.seen_again[wanted]


def question_of(binding: Binding, asked: Certificate | None) -> Hashable:
    """Equal for bindings of one kind of replica, which are nowhere, that ask the same."""
    wanted = binding.requirements
    claim = wanted.node_claim.key if wanted.node_claim else None
    return frozenset(wanted.request.items()), claim, asked
