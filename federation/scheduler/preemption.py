"""Which replicas make room for a binding of higher priority, with the least loss.

Pure. Must not know rooms: it asks whether the binding fits once some replicas are gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

# With so many choices the least loss of all is looked for; with more one that cannot be made less.
MOST_EXACT_UNITS: Final = 12

# How many replicas each candidate loses.
Losses: TypeAlias = tuple[int, ...]
Fits: TypeAlias = Callable[[Losses], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Replicas of a binding in a cluster that may be taken: any number of them where it is
    ``divisible``, else all or none. ``placed_at`` is in Unix seconds.
    """

    binding: str
    cluster: str
    priority: int
    replicas: int
    divisible: bool
    placed_at: float

    @property
    def choices(self) -> range:
        return range(0, self.replicas + 1, 1 if self.divisible else self.replicas)


def least_loss(candidates: Sequence[Candidate], fits: Fits) -> Losses | None:
    """What each candidate loses so that the binding fits; None where it does not without all.

    First the highest priority that loses anything is least, then the replicas are fewest, then
    those placed last are spared, then earlier candidates lose first. No part of the answer can be
    left out. Who loses more leaves at least as much room.
    """
    most = _least_urgent(candidates, fits)
    if most is None:
        return None
    found = _spared(candidates, most, fits)
    units = sum(len(each.choices) - 1 for each, loss in zip(candidates, most, strict=True) if loss)
    return _least(candidates, most, found, fits) if units <= MOST_EXACT_UNITS else found


def cost(candidates: Sequence[Candidate], losses: Losses) -> tuple[object, ...]:
    """What losses are compared by: less is better."""
    losing = [position for position, loss in enumerate(losses) if loss]
    return (
        max((candidates[position].priority for position in losing), default=-(2**31)),
        sum(losses),
        sorted((candidates[position].placed_at for position in losing), reverse=True),
        [(position, -losses[position]) for position in losing],
    )


def _least_urgent(candidates: Sequence[Candidate], fits: Fits) -> Losses | None:
    """Everything of the priorities up to the least one with which the binding fits."""
    priorities = sorted({each.priority for each in candidates})

    def up_to(priority: int) -> Losses:
        return tuple(each.replicas if each.priority <= priority else 0 for each in candidates)

    first = bisect_left(priorities, True, key=lambda priority: fits(up_to(priority)))
    return up_to(priorities[first]) if first < len(priorities) else None


def _spared(candidates: Sequence[Candidate], most: Losses, fits: Fits) -> Losses:
    """Of these losses those without which the binding does not fit; who is worth most is spared
    first.
    """
    losses = list(most)

    def worth(position: int) -> tuple[float, ...]:
        candidate = candidates[position]
        return -candidate.priority, -candidate.replicas, -candidate.placed_at, -position

    for position in sorted(filter(lambda each: most[each], range(len(most))), key=worth):

        def fits_with(loss: int, position: int = position) -> bool:
            return fits((*losses[:position], loss, *losses[position + 1 :]))

        choices = [each for each in candidates[position].choices if each <= most[position]]
        # With all of it the binding fits.
        losses[position] = choices[bisect_left(choices[:-1], True, key=fits_with)]
    return tuple(losses)


def _least(candidates: Sequence[Candidate], most: Losses, found: Losses, fits: Fits) -> Losses:
    """The least losses of all within ``most``; ``found`` are some with which it fits."""
    too_little: list[Losses] = []
    for losses in _cheaper(candidates, most, found):
        if any(all(map(int.__le__, losses, each)) for each in too_little):
            continue
        if fits(losses):
            return losses
        too_little.append(losses)
    return found


def _cheaper(candidates: Sequence[Candidate], most: Losses, found: Losses) -> Iterator[Losses]:
    """All losses within ``most`` that cost less than those found, the least first."""
    limit = cost(candidates, found)
    choices = [
        [loss for loss in each.choices if loss <= highest]
        for each, highest in zip(candidates, most, strict=True)
    ]
    priced = ((cost(candidates, losses), losses) for losses in product(*choices))
    yield from (losses for _, losses in sorted(each for each in priced if each[0] < limit))
