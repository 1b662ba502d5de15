"""The match of pods and reservations: what an agent counts in the snapshot of a report.

Pure; shared by the agent, which counts, and the control plane, which says what to look for. Must
not see more of a pod than the match needs.
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
    """An object in a member cluster that owns pods."""

    api_version: str
    kind: str
    namespace: str
    name: str


class PodOrigin(NamedTuple):
    """The binding of a pod, as its labels and owners tell; the nearest owner is first.

    ``component`` and ``decision`` are None without the label. ``owners`` may include possible ones:
    a Job whose name ends in a number may belong to a CronJob.
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
    """The state of a pod. BOUND: on a node and not over, also while it is deleted. UNBOUND: waits
    for a node.

    FINISHED: succeeded. Failed pods count for nothing.
    """

    BOUND = "bound"
    UNBOUND = "unbound"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSighting:
    """The parts of a pod that matter for a reservation: ``request`` in base units, rounded up."""

    state: SightingState
    request: Mapping[str, int]
    origin: PodOrigin = UNKNOWN_ORIGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtShape:
    """A shape of one component and the decisions that requested it.

    ``planned`` are the replicas promised by plan: nodes are claimed for those that are not bound
    yet; None: no claims. ``echoed`` replicas are bound in the newest report, or ran before the
    binding was registered. ``promised`` are all promised replicas; None from an older control
    plane.
    """

    component: str
    shape: Shape
    decisions: tuple[str, ...]
    planned: Share | None = None
    echoed: int = 0
    promised: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """The pods to look for on behalf of one binding; the newest shape of each component is first.

    ``uid`` is the value of the binding's label on pods; empty: pods are not found by label.
    """

    binding: str
    uid: str = ""
    owner: Owner | None
    shapes: tuple[SoughtShape, ...]

    def has_ended(self, decision: str) -> bool:
        """Return whether nothing is promised any more for a decision.

        The binding may have been decided again since the interest was written.
        """
        return all(shape.promised == 0 for shape in self.shapes) and any(
            decision in shape.decisions for shape in self.shapes
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InterestUpdate:
    """The interests of an agent from ``version`` on, or their changes; reports name the version.

    ``whole``: interests that are not included end.
    """

    version: int
    whole: bool
    interests: tuple[Interest, ...] = ()
    removed: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return whether this is the last part: earlier parts have no version, nor has an empty
        ledger.
        """
        return self.version > 0 or (self.whole and not self.interests)


class Lookout:
    """The interests of an agent, found by a pod's label, else by its owner.

    If two bindings have the same workload, its pods belong to the first one by name.
    """

    def __init__(self, interests: Iterable[Interest] = ()) -> None:
        self._interests: dict[str, Interest] = {}
        self._by_uid: dict[str, dict[str, Interest]] = {}
        self._by_owner: dict[Owner, dict[str, Interest]] = {}
        for interest in interests:
            self.put(interest)

    def get(self, binding: str) -> Interest | None:
        return self._interests.get(binding)

    def bindings(self) -> Iterable[str]:
        return self._interests.keys()

    def put(self, interest: Interest) -> None:
        """Replace the interest of a binding."""
        self.remove(interest.binding)
        self._interests[interest.binding] = interest
        if interest.uid:
            self._by_uid.setdefault(interest.uid, {})[interest.binding] = interest
        if interest.owner is not None:
            self._by_owner.setdefault(interest.owner, {})[interest.binding] = interest

    def remove(self, binding: str) -> None:
        interest = self._interests.pop(binding, None)
        if interest is None:
            return
        if interest.uid:
            _forget(self._by_uid, interest.uid, binding)
        if interest.owner is not None:
            _forget(self._by_owner, interest.owner, binding)

    def of(self, origin: PodOrigin) -> Interest | None:
        """Return the interest to which a pod of this origin belongs; None: no one."""
        if origin.binding_uid and origin.binding_uid in self._by_uid:
            return _first(self._by_uid[origin.binding_uid])
        for owner in origin.owners:
            if owner in self._by_owner:
                return _first(self._by_owner[owner])
        return None


def reservation_of(lookout: Lookout, pod: PodSighting) -> ReservationKey | None:
    """Return the reservation to which a pod belongs; None: no one.

    The binding is that of the uid in the pod's label, else that of its owner. The component is that
    of the label, else one with the same request, else the first. The shape is that of the decision
    in the pod's label, else the one of the same request, else the newest. Equality of requests
    alone would not do: sidecars and limit ranges change the requests of pods.
    """
    interest = lookout.of(pod.origin)
    if interest is None or not interest.shapes:
        return None
    sought = _shape_of(pod, interest.shapes)
    return ReservationKey(interest.binding, sought.component, sought.shape)


def _shape_of(pod: PodSighting, shapes: Sequence[SoughtShape]) -> SoughtShape:
    if len(shapes) == 1:
        return shapes[0]
    request = request_shape(pod.request)
    component = _component_of(pod, request, shapes)
    newest, *older = (shape for shape in shapes if shape.component == component)
    decision = pod.origin.decision
    by_decision = (shape for shape in (newest, *older) if decision in shape.decisions)
    by_request = (shape for shape in (newest, *older) if shape.shape == request)
    return next(by_decision, None) or next(by_request, None) or newest


def _component_of(pod: PodSighting, request: Shape, shapes: Sequence[SoughtShape]) -> str:
    named = pod.origin.component
    for shape in shapes:
        if shape.component == named:
            return shape.component
    for shape in shapes:
        if shape.shape == request:
            return shape.component
    return shapes[0].component


def _first(interests: Mapping[str, Interest]) -> Interest:
    return interests[min(interests)]


def _forget(index: dict[_Key, dict[str, Interest]], key: _Key, binding: str) -> None:
    """Drop a binding's entry, and the key with its last entry."""
    del index[key][binding]
    if not index[key]:
        del index[key]
