"""Results about a fleet's capacity, remembered for bindings with equal requests.

They hold until the packed capacity changes. Must not promise anything.
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
from federation.services.fleet.snapshot import OutstandingByCluster

# A memo holds at most so many numbers of 8 to 10 bytes, one or two for each cluster and answer.
MAX_NUMBERS: Final = 2_000_000
# A memo holds so many answers however large the fleet is.
MIN_ANSWERS: Final = 64

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class Memo(dict[Key, Answer]):
    """Answers by question; the oldest one is dropped if there are too many.

    An answer has some numbers for each cluster, so a larger fleet has fewer answers.
    """

    def __init__(self, clusters: int) -> None:
        super().__init__()
        self.max_answers = max(MIN_ANSWERS, MAX_NUMBERS // max(clusters, 1))

    def __setitem__(self, key: Key, answer: Answer) -> None:
        if len(self) >= self.max_answers and key not in self:
            del self[next(iter(self))]
        super().__setitem__(key, answer)


class KnownRefusal(NamedTuple):
    """A decision that refuses a binding, with its full reason, and the inputs of that decision.

    ``unseen_in`` are clusters whose reports did not show all ``outstanding`` promises.
    """

    available: Estimates
    outstanding: OutstandingByCluster
    inputs: DecisionInputs
    decision: Decision
    unseen_in: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class KnownAnswers:
    """Answers about ``rooms``, the packed capacity of a fleet. They belong to one thread.

    Availability and refusals pay in ``bench_queue``, ``for_placed`` in ``bench_previews``, and
    ``lessened`` in the preemption of ``bench_reserve`` (all in lab/benchmarks).
    """

    rooms: FleetRooms
    # For bindings without a place: by ``question_of``.
    for_new: Memo[Hashable, Estimates]
    # For placed bindings, whose own reservations are in these ledgers.
    for_placed: Memo[Hashable, tuple[Sequence[ClusterLedger], Estimates]]
    # Refusals of bindings without a place.
    refusals: Memo[Hashable, KnownRefusal]
    # The scarce resource, by question.
    scarce: dict[Certificate | None, Memo[Hashable, Reason]] = field(default_factory=dict)
    # Rooms packed anew for bindings that lose replicas.
    lessened: PackedRooms = field(default_factory=dict)

    @classmethod
    def about(cls, rooms: FleetRooms) -> KnownAnswers:
        """Return empty memos for these rooms."""
        clusters = len(rooms.clusters)
        return cls(rooms, Memo(clusters), Memo(clusters), Memo(clusters))

    def scarcities(self, certificate: Certificate | None) -> Memo[Hashable, Reason]:
        """Return the scarce resource by question, for bindings that request this certificate."""
        if certificate not in self.scarce:
            self.scarce[certificate] = Memo(len(self.rooms.clusters))
        return self.scarce[certificate]

    def available_to_new(
        self,
        binding: Binding,
        certificate: Certificate | None,
        compute: Callable[[Binding, Certificate | None], Estimates],
        *,
        leaves_large: bool,
    ) -> Estimates:
        """Return what is available to a binding without a place, computed once."""
        key = question_of(binding, certificate), leaves_large
        estimates = self.for_new.get(key)
        if estimates is None:
            estimates = self.for_new[key] = compute(binding, certificate)
        return estimates

    def available_to_placed(
        self,
        binding: Binding,
        certificate: Certificate | None,
        ledgers: Sequence[ClusterLedger],
        compute: Callable[[Binding, Certificate | None], Estimates],
    ) -> Estimates:
        """Return what is available to a placed binding, computed once for these ledgers."""
        question = question_of(binding, certificate), binding.key, binding.clusters
        answer = self.for_placed.get(question)
        if answer is None or answer[0] is not ledgers:
            answer = self.for_placed[question] = ledgers, compute(binding, certificate)
        return answer[1]


def question_of(binding: Binding, certificate: Certificate | None) -> Hashable:
    """Return a key that is equal for bindings with equal requests and certificates.

    The bindings must have one kind of replica, no components, and no place yet.
    """
    requirements = binding.requirements
    claim = requirements.node_claim.key if requirements.node_claim else None
    return frozenset(requirements.request.items()), claim, certificate
