"""Changes of a binding's promises in a cluster by a decision: which stay in place, which are new.

Pure. More replicas of the same are new in addition, and what was promised keeps its place. Any
other promise that grows is made anew as a whole. Must not pack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from federation.model.reservations import (
    Outstanding,
    PackingOrder,
    PromiseCertificate,
    is_repeated,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseChange:
    """A change of promises: those that the binding ``had``, and what is ``kept`` of each.

    A promise that is dropped is None in ``kept``. ``more`` come after all promises.
    """

    had: tuple[Outstanding, ...]
    kept: tuple[Outstanding | None, ...]
    more: tuple[Outstanding, ...]

    @classmethod
    def of(cls, had: tuple[Outstanding, ...], asks: tuple[Outstanding, ...]) -> PromiseChange:
        """Return the change to ``asks``, which are all promises of the binding afterwards."""
        change = cls._by_part(had, asks)
        if had and change.more and any(promise.component for promise in asks):
            # A whole set needs room for several components at once.
            return cls(had=had, kept=(None,) * len(had), more=tuple(_by_component(asks).values()))
        return change

    @classmethod
    def _by_part(cls, had: tuple[Outstanding, ...], asks: tuple[Outstanding, ...]) -> PromiseChange:
        if asks[: len(had)] == had:
            return cls(had=had, kept=had, more=asks[len(had) :])
        rests = _by_component(asks)
        held = _by_component(had)
        staying: list[Outstanding | None] = []
        for promise in had:
            rest = rests.get(promise.component)
            if rest is None or not _continues(promise, rest, held[promise.component]):
                staying.append(None)
                continue
            part = _part_of(rest, promise)
            staying.append(part if part.in_cells else None)
            rests[promise.component] = _less(rest, part)
            held[promise.component] = _less(held[promise.component], promise)
        additional = tuple([rest for rest in rests.values() if rest.in_cells])
        return cls(had=had, kept=tuple(staying), more=additional)

    @property
    def is_in_place(self) -> bool:
        """Tell whether all earlier promises stay as they are."""
        return self.kept == self.had

    def kept_of(self, component: str) -> int:
        """Return how many replicas of a component need room and stay in their places."""
        return sum([part.to_pack for part in self.kept if part and part.component == component])


def kept_in(order: PackingOrder, changes: Mapping[str, PromiseChange]) -> PackingOrder:
    """Return the promises that stay in a cluster, in order, by the changes of some bindings."""
    parts = {binding: iter(change.kept) for binding, change in changes.items()}
    stays = [
        next(parts[promise.binding]) if promise.binding in parts else promise
        for promise in order.promises
    ]
    older = [promise for promise in stays[: order.grouped] if promise is not None]
    later = [promise for promise in stays[order.grouped :] if promise is not None]
    return PackingOrder((*older, *later), len(older))


def of_binding(outstanding: Iterable[Outstanding], binding: str) -> tuple[Outstanding, ...]:
    """Return the promises of one binding, in their order."""
    return tuple([promise for promise in outstanding if promise.binding == binding])


def positions_by_promises(
    asks: Mapping[int, tuple[Outstanding, ...]], positions: Iterable[int]
) -> Collection[tuple[tuple[Outstanding, ...], list[int]]]:
    """Group the positions of clusters by their promises, which are compared by identity.

    Promises of a decision mostly share a few values, and to compare values would take longer than
    to do the same work twice.
    """
    groups: dict[int, tuple[tuple[Outstanding, ...], list[int]]] = {}
    for position in positions:
        promises = asks[position]
        group = groups.get(id(promises))
        if group is None:
            group = groups[id(promises)] = promises, []
        group[1].append(position)
    return groups.values()


def _by_component(promises: Sequence[Outstanding]) -> dict[str, Outstanding]:
    """Return the promises of each component as one, worth what the newest is."""
    whole: dict[str, Outstanding] = {}
    for promise in promises:
        older = whole.get(promise.component)
        whole[promise.component] = promise if older is None else _more(promise, older)
    return whole


def _continues(promise: Outstanding, ask: Outstanding, held: Outstanding) -> bool:
    """Tell whether a promise is a part of ``ask``; ``held`` is all of its component.

    An ask that does not grow may be worth less, or may have been promised without proof of room.
    """
    if ask.in_cells > held.in_cells:
        return is_repeated(promise, ask.requirements, ask.certificate)
    strict = PromiseCertificate.STRICT
    return (
        (promise.certificate is strict or ask.certificate is not strict)
        and promise.shape == ask.shape
        and promise.requirements.node_claim == ask.requirements.node_claim
    )


def _part_of(ask: Outstanding, promise: Outstanding) -> Outstanding:
    """Return the part of a promise that stays: the oldest promises fill the ask first."""
    in_cells = min(promise.in_cells, ask.in_cells)
    credited = min(in_cells, ask.credited)
    # A credited replica that needs room of its own now is as good as new.
    if in_cells - credited > promise.to_pack:
        in_cells = promise.to_pack + credited
    # Pods that wait for a node belong to the oldest promise, too.
    waiting = min(in_cells, ask.in_cells - ask.in_summary)
    return promise._replace(
        requirements=ask.requirements,
        certificate=ask.certificate,
        in_cells=in_cells,
        in_summary=in_cells - waiting,
        credited=credited,
    )


def _more(promise: Outstanding, other: Outstanding) -> Outstanding:
    return promise._replace(
        in_cells=promise.in_cells + other.in_cells,
        in_summary=promise.in_summary + other.in_summary,
        credited=promise.credited + other.credited,
    )


def _less(promise: Outstanding, part: Outstanding) -> Outstanding:
    return promise._replace(
        in_cells=promise.in_cells - part.in_cells,
        in_summary=max(0, promise.in_summary - part.in_summary),
        credited=max(0, promise.credited - part.credited),
    )
