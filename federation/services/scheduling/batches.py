"""Several bindings in one call: decided by priority, each committed or refused by itself.

Must not make a batch atomic: each item is decided as by ``Scheduling.schedule``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from federation.model.errors import Conflict, FederationError, InvalidRequest, PreconditionFailed
from federation.model.placement import Binding
from federation.services.scheduling.bindings import Scheduling
from federation.services.values import Once, Scheduled

_Answer: TypeAlias = "asyncio.Future[Scheduled]"

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
    submitted: list[_Answer | FederationError] = []
    try:
        for item in items:
            _submit(scheduling, item, submitted)
        await _all_arrived([each for each in submitted if isinstance(each, asyncio.Future)])
    finally:
        for each in submitted:
            if isinstance(each, asyncio.Future):
                each.cancel()
    return [
        each if isinstance(each, FederationError) else _outcome(scheduling, item, each)
        for item, each in zip(items, submitted, strict=True)
    ]


def _submit(
    scheduling: Scheduling, item: BatchItem, submitted: list[_Answer | FederationError]
) -> None:
    try:
        submitted.append(
            scheduling.submit(item.binding, adopt=item.adopt, wait=item.wait, once=item.once)
        )
    except ITEM_ERRORS as error:
        submitted.append(error)


async def _all_arrived(answers: Sequence[_Answer]) -> None:
    """Raises what is wrong with more than one item, as soon as that is known."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(answers)

    def arrived(answer: _Answer) -> None:
        nonlocal left
        left -= 1
        error = None if answer.cancelled() else answer.exception()
        if ended.done():
            return
        if error is not None and not isinstance(error, ITEM_ERRORS):
            ended.set_exception(error)
        elif not left:
            ended.set_result(None)

    for answer in answers:
        answer.add_done_callback(arrived)
    if answers:
        await ended


def _outcome(
    scheduling: Scheduling, item: BatchItem, answer: _Answer
) -> Scheduled | FederationError:
    error = answer.exception()
    if isinstance(error, FederationError):
        return error
    scheduling.learn(item.binding)
    return answer.result()
