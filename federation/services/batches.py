"""Several bindings in one call: decided by priority, each committed or refused by itself.

Must not make a batch atomic: each item is decided as by ``Scheduling.schedule``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from federation.model.errors import Conflict, FederationError, InvalidRequest, PreconditionFailed
from federation.model.placement import Binding
from federation.services.scheduling import Scheduling
from federation.services.values import Once, Scheduled

# What is wrong with one item and says nothing about the next.
ITEM_ERRORS = (InvalidRequest, PreconditionFailed, Conflict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """One binding, and the same choices as for one alone."""

    binding: Binding
    adopt: bool = False
    wait: bool = True
    once: Once | None = None


async def schedule_batch(
    scheduling: Scheduling, items: Sequence[BatchItem]
) -> list[Scheduled | FederationError]:
    """Decides by (priority descending, place in the batch); answers in the order of the batch.

    What is wrong with one item is its answer. Raises Unavailable, with some items committed.
    """

    async def answered(item: BatchItem) -> Scheduled | FederationError:
        try:
            return await scheduling.schedule(
                item.binding, adopt=item.adopt, wait=item.wait, once=item.once
            )
        except ITEM_ERRORS as error:
            return error

    tasks = [asyncio.create_task(answered(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
