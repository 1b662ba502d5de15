"""Which pods stand for which reservation: what an agent counts while it takes a report's snapshot.

Pure; shared by the agent, which counts, and the control plane, which says what to look for. Must
not see more of a pod than decides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from federation.model.reservations import Share
from federation.model.shapes import ReservationKey, Shape, request_shape

BINDING_LABEL: Final = "fedsched.io/binding"
COMPONENT_LABEL: Final = "fedsched.io/component"
DECISION_LABEL: Final = "fedsched.io/decision"

_Key = TypeVar("_Key", str, "Owner")


class Owner(NamedTuple):
    """An object in a member cluster that pods run for."""

    api_version: str
    kind: str
    namespace: str
    name: str


class PodOrigin(NamedTuple):
    """Whom a pod says it runs for: what its labels name, and its owners, the nearest first.

    ``component`` and ``decision`` are None without the label. ``owners`` may name some that are
    only possible: a Job with a number at the end of its name may be a CronJob's.
    """

    binding_uid: str = ""
    component: str | None = None
    decision: str | None = None
    owners: tuple[Owner, ...] = ()

    @classmethod
    def of(cls, labels: Mapping[str, str], owners: tuple[Owner, ...] = ()) -> PodOrigin:
        return cls(
            labels.get(BINDING_LABEL, ""),
            labels.get(COMPONENT_LABEL),
            labels.get(DECISION_LABEL),
            owners,
        )


UNKNOWN_ORIGIN: Final = PodOrigin()


class SightingState(StrEnum):
    """BOUND: on a node and not over, being deleted included. UNBOUND: waits for a node.

    FINISHED: succeeded. Failed pods stand for nothing.
    """

    BOUND = "bound"
    UNBOUND = "unbound"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSighting:
    """A pod as far as it can stand for a reservation: ``request`` in base units, rounded up."""

    state: SightingState
    request: Mapping[str, int]
    origin: PodOrigin = UNKNOWN_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtShape:
    """A shape of one component and the decisions that asked for it.

    ``planned`` are the replicas promised by plan: nodes are claimed for those of them that are
    not seen bound. None: nothing hangs on claims. ``echoed`` replicas count as bound by the newest
    report, or ran before the binding was known. ``promised`` are all replicas that are promised;
    None from a control plane that does not say.
    """

    component: str
    shape: Shape
    decisions: tuple[str, ...]
    planned: Share | None = None
    echoed: int = 0
    promised: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What to look for on behalf of one binding: of each component the newest shape first.

    ``uid`` is what the binding's label on pods holds; empty: nothing is looked for by label.
    """

    binding: str
    uid: str = ""
    owner: Owner | None
    shapes: tuple[SoughtShape, ...]

    def has_ended(self, decision: str) -> bool:
        """Whether nothing is promised any more of what this decision asked for.

        The binding may have been decided again since this was written: that decision is not in it.
        """
        return all(each.promised == 0 for each in self.shapes) and any(
            decision in each.decisions for each in self.shapes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InterestUpdate:
    """What an agent looks for from now on, or what changed of it; reports name the ``version``.

    ``whole``: what is not in here is not looked for any more.
    """

    version: int
    whole: bool
    interests: tuple[Interest, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all is said: parts but the last have no version, nor has an empty ledger."""
        return self.version > 0 or (self.whole and not self.interests)


class Lookout:
    """What is looked for, found by what pods say of themselves: the label, else the owner.

    Of two bindings with the same workload the first by name has its pods.
    """

    def __init__(self, interests: Iterable[Interest] = ()) -> None:
        self._interests: dict[str, Interest] = {}
        self._by_uid: dict[str, dict[str, Interest]] = {}
        self._by_owner: dict[Owner, dict[str, Interest]] = {}
        for each in interests:
            self.put(each)

    def get(self, binding: str) -> Interest | None:
        return self._interests.get(binding)

    def bindings(self) -> Iterable[str]:
        return self._interests.keys()

    def put(self, interest: Interest) -> None:
        """Look for this on behalf of its binding, and for nothing else."""
        self.remove(interest.binding)
        self._interests[interest.binding] = interest
        if interest.uid:
            self._by_uid.setdefault(interest.uid, {})[interest.binding] = interest
        if interest.owner is not None:
            self._by_owner.setdefault(interest.owner, {})[interest.binding] = interest

    def remove(self, binding: str) -> None:
        known = self._interests.pop(binding, None)
        if known is None:
            return
        if known.uid:
            _forget(self._by_uid, known.uid, binding)
        if known.owner is not None:
            _forget(self._by_owner, known.owner, binding)

    def of(self, origin: PodOrigin) -> Interest | None:
        """What a pod of this origin is looked for by; None: nobody looks for it."""
        if origin.binding_uid and origin.binding_uid in self._by_uid:
            return _first(self._by_uid[origin.binding_uid])
        for owner in origin.owners:
            if owner in self._by_owner:
                return _first(self._by_owner[owner])
        return None


def reservation_of(lookout: Lookout, pod: PodSighting) -> ReservationKey | None:
    """The reservation that a pod stands for; None: none that is looked for.

    A pod belongs to the binding whose uid its label names, else to that of its owner; to the
    component its label names, else to one that asks for the same, else to the first. It has the
    newest shape unless it asks for what an older one does or carries an older one's decision:
    sidecars and limit ranges change what pods ask for, so equality alone would miss them for ever.
    """
    interest = lookout.of(pod.origin)
    if interest is None or not interest.shapes:
        return None
    sought = _shape_of(pod, interest.shapes)
    return ReservationKey(interest.binding, sought.component, sought.shape)


def _shape_of(pod: PodSighting, shapes: Sequence[SoughtShape]) -> SoughtShape:
    if len(shapes) == 1:
        return shapes[0]
    asked = request_shape(pod.request)
    component = _component_of(pod, asked, shapes)
    newest, *older = (each for each in shapes if each.component == component)
    decision = pod.origin.decision
    by_decision = (each for each in (newest, *older) if decision in each.decisions)
    by_request = (each for each in (newest, *older) if each.shape == asked)
    return next(by_decision, None) or next(by_request, None) or newest


def _component_of(pod: PodSighting, asked: Shape, shapes: Sequence[SoughtShape]) -> str:
    named = pod.origin.component
    for each in shapes:
        if each.component == named:
            return each.component
    for each in shapes:
        if each.shape == asked:
            return each.component
    return shapes[0].component


def _first(interests: Mapping[str, Interest]) -> Interest:
    return interests[min(interests)]


def _forget(index: dict[_Key, dict[str, Interest]], key: _Key, binding: str) -> None:
    """Drop a binding's entry, and the key with its last."""
    del index[key][binding]
    if not index[key]:
        del index[key]
