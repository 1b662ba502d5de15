"""A binding's promises in a cluster, from one decision to the next: what stays, and what is new.

Pure. More of the very same is new in addition: what was promised keeps its place. All else that
grows is promised anew, as a whole. Must not pack.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from federation.model.reservations import Outstanding, PromiseCertificate, is_repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseChange:
    """The promises that a binding ``had``; of each what is ``kept``, None where it is dropped; and
    ``more``, which comes after all that is promised.
    """

    had: tuple[Outstanding, ...]
    kept: tuple[Outstanding | None, ...]
    more: tuple[Outstanding, ...]

    @classmethod
    def of(cls, had: tuple[Outstanding, ...], asks: tuple[Outstanding, ...]) -> PromiseChange:
        """Return the change to all that is wanted of the binding's components."""
        change = cls._by_part(had, asks)
        if had and change.more and any(promise.component for promise in asks):
            # Whole sets need more than one kind of room.
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
        """Whether all that was promised stays as it is."""
        return self.kept == self.had

    def kept_of(self, component: str) -> int:
        """Return how many replicas of a component need room and stay in their places."""
        return sum([part.to_pack for part in self.kept if part and part.component == component])


def kept_in(
    outstanding: Iterable[Outstanding], changes: Mapping[str, PromiseChange]
) -> tuple[Outstanding, ...]:
    """Return all that stays promised in a cluster, in its order, by changes of some bindings."""
    parts = {binding: iter(change.kept) for binding, change in changes.items()}
    stays = (
        next(parts[promise.binding]) if promise.binding in parts else promise
        for promise in outstanding
    )
    return tuple([promise for promise in stays if promise is not None])


def of_binding(outstanding: Iterable[Outstanding], binding: str) -> tuple[Outstanding, ...]:
    """Return the promises of one binding, in their order."""
    return tuple([promise for promise in outstanding if promise.binding == binding])


def with_parts_as_one(
    had: tuple[Outstanding, ...], outstanding: Sequence[Outstanding]
) -> tuple[Outstanding, ...] | None:
    """Return what was promised in a cluster, with parts as one where ``outstanding`` has them so;
    None where it does not begin with that.
    """
    if len(outstanding) >= len(had) and tuple(outstanding[: len(had)]) == had:
        return had
    parts = list(had)
    for place, as_one in enumerate(outstanding):
        while place < len(parts) and parts[place] != as_one:
            part = parts[place]
            newer = next(
                (later for later in range(place + 1, len(parts)) if _is_of(part, parts[later])), 0
            )
            if not newer or part.in_cells >= as_one.in_cells:
                return None
            parts[place] = _more(part, parts.pop(newer))
    return tuple(parts) if len(parts) <= len(outstanding) else None


def _is_of(promise: Outstanding, other: Outstanding) -> bool:
    """Tell whether two promises are of one component."""
    return promise.binding == other.binding and promise.component == other.component


def _by_component(promises: Sequence[Outstanding]) -> dict[str, Outstanding]:
    """Return the promises of each component as one, worth what the newest is."""
    whole: dict[str, Outstanding] = {}
    for promise in promises:
        older = whole.get(promise.component)
        whole[promise.component] = promise if older is None else _more(promise, older)
    return whole


def _continues(promise: Outstanding, ask: Outstanding, held: Outstanding) -> bool:
    """Tell whether a promise is a part of what is wanted; ``held`` is all of its component.

    What does not grow may be worth less, or have been promised where nothing showed room.
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
    """Return what of a promise stays: no more than is wanted, of which the oldest comes first."""
    in_cells = min(promise.in_cells, ask.in_cells)
    credited = min(in_cells, ask.credited)
    # One that needed no room of its own and needs some now is as good as new.
    if in_cells - credited > promise.to_pack:
        in_cells = promise.to_pack + credited
    # Pods that wait for a node are those of the oldest, too.
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
