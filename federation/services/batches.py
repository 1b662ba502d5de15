"""Several bindings in one call: one after the other, by priority.

Must not make a batch atomic: each item is committed by itself, as by ``Scheduling.schedule``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from federation.model.errors import Conflict, FederationError, InvalidRequest, PreconditionFailed
from federation.model.placement import Binding
from federation.services.scheduling import Scheduling
from federation.services.values import Scheduled

# What is wrong with one item and says nothing about the next.
ITEM_ERRORS = (InvalidRequest, PreconditionFailed, Conflict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """One binding, and the same choices as for one alone."""

    binding: Binding
    adopt: bool = False
    wait: bool = True


async def schedule_batch(
    scheduling: Scheduling, items: Sequence[BatchItem]
) -> list[Scheduled | FederationError]:
    """Decides by (priority descending, place in the batch); answers in the order of the batch.

    What is wrong with one item is its answer. Raises Unavailable, with the items before committed.
    """
    answers: dict[int, Scheduled | FederationError] = {}
    for place in sorted(range(len(items)), key=lambda each: -items[each].binding.priority):
        item = items[place]
        try:
            answers[place] = await scheduling.schedule(
                item.binding, adopt=item.adopt, wait=item.wait
            )
        except ITEM_ERRORS as error:
            answers[place] = error
    return [answers[place] for place in range(len(items))]
