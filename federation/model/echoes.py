"""Which pods stand for which reservation: what an agent counts while it takes a report's snapshot.

Pure; shared by the agent, which counts, and the control plane, which says what to look for. Must
not see more of a pod than decides it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from federation.model.ledger import ClusterLedger
from federation.model.reservations import Reservation
from federation.model.shapes import Echo, Shape, request_shape

BINDING_LABEL: Final = "fedsched.io/binding"
COMPONENT_LABEL: Final = "fedsched.io/component"
DECISION_LABEL: Final = "fedsched.io/decision"


class Owner(NamedTuple):
    """A top-level object in a member cluster."""

    api_version: str
    kind: str
    namespace: str
    name: str


class PodState(StrEnum):
    """BOUND: on a node and not over, being deleted included. UNBOUND: waits for a node.

    FINISHED: succeeded. Failed pods stand for nothing.
    """

    BOUND = "bound"
    UNBOUND = "unbound"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSighting:
    """A pod as far as it can stand for a reservation: ``request`` in base units, rounded up."""

    state: PodState
    request: Mapping[str, int]
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SoughtShape:
    """A shape of one component and the decisions that asked for it."""

    component: str
    shape: Shape
    decisions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What to look for on behalf of one binding: of each component the newest shape first."""

    binding: str
    owner: Owner | None
    shapes: tuple[SoughtShape, ...]


def interests_of(ledger: ClusterLedger, owners: Mapping[str, Owner]) -> tuple[Interest, ...]:
    """What the agent of a cluster has to look for; ``owners`` by binding, where known."""
    return tuple(
        Interest(
            binding=binding,
            owner=owners.get(binding),
            shapes=tuple(map(_sought, _newest_first(held))),
        )
        for binding, held in ledger.reservations.items()
    )


def echoes_of(interests: Sequence[Interest], pods: Iterable[PodSighting]) -> tuple[Echo, ...]:
    """What there is of every shape that is looked for, shapes without pods left out.

    A pod belongs to the binding its label names, else to that of its owner; to the component its
    label names, else to one that asks for the same, else to the first. It has the newest shape
    unless it asks for what an older one does or carries an older one's decision: sidecars and
    limit ranges change what pods ask for, so equality alone would miss them for ever.
    """
    by_binding = {each.binding: each for each in interests}
    by_owner = {each.owner: each for each in interests if each.owner is not None}
    counted: dict[tuple[str, str, Shape], Echo] = {}
    for pod in pods:
        interest = by_binding.get(pod.labels.get(BINDING_LABEL, ""))
        if interest is None and pod.owner is not None:
            interest = by_owner.get(pod.owner)
        if interest is None or not interest.shapes:
            continue
        sought = _shape_of(pod, interest.shapes)
        empty = Echo(binding=interest.binding, component=sought.component, shape=sought.shape)
        counted[empty.key] = _with_one(counted.get(empty.key, empty), pod.state)
    return tuple(counted.values())


def _shape_of(pod: PodSighting, shapes: Sequence[SoughtShape]) -> SoughtShape:
    asked = request_shape(pod.request)
    component = _component_of(pod, asked, shapes)
    newest, *older = (each for each in shapes if each.component == component)
    decision = pod.labels.get(DECISION_LABEL)
    by_decision = (each for each in (newest, *older) if decision in each.decisions)
    by_request = (each for each in (newest, *older) if each.shape == asked)
    return next(by_decision, None) or next(by_request, None) or newest


def _component_of(pod: PodSighting, asked: Shape, shapes: Sequence[SoughtShape]) -> str:
    named = pod.labels.get(COMPONENT_LABEL)
    for each in shapes:
        if each.component == named:
            return each.component
    for each in shapes:
        if each.shape == asked:
            return each.component
    return shapes[0].component


def _with_one(echo: Echo, state: PodState) -> Echo:
    match state:
        case PodState.BOUND:
            return replace(echo, bound=echo.bound + 1)
        case PodState.UNBOUND:
            return replace(echo, unbound=echo.unbound + 1)
        case PodState.FINISHED:
            return replace(echo, finished=echo.finished + 1)


def _newest_first(held: Sequence[Reservation]) -> list[Reservation]:
    """By component in the order of the binding, and in each the newest shape first."""
    places: dict[str, int] = {}
    for each in held:
        places.setdefault(each.component, len(places))
    return sorted(held, key=lambda each: (places[each.component], -each.interest_version))


def _sought(reservation: Reservation) -> SoughtShape:
    return SoughtShape(
        component=reservation.component,
        shape=reservation.shape,
        decisions=reservation.decisions,
    )
