"""Batches of bindings: each item decided by itself, or all of them placed or none.

Must not decide or commit: ``pipeline`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from federation.history.bodies import NewerBody
from federation.model.errors import (
    Conflict,
    FederationError,
    InvalidRequest,
    PreconditionFailed,
)
from federation.model.placement import Binding
from federation.runtime.futures import fail
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.together import not_placed_together
from federation.services.values import Once, Scheduled

_Answer: TypeAlias = "asyncio.Future[Scheduled]"

# What is wrong with one item and says nothing about the next.
ITEM_ERRORS = (InvalidRequest, PreconditionFailed, Conflict, NewerBody)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """One binding, and the same choices as for one alone."""

    binding: Binding
    adopt: bool = False
    wait: bool = True
    once: Once | None = None


async def schedule_batch(
    scheduling: Scheduling, items: Sequence[BatchItem | InvalidRequest], *, atomic: bool = False
) -> list[Scheduled | FederationError]:
    """Decides by (priority descending, place in the batch); answers in the order of the batch.

    What is wrong with one item is its answer, also where it was wrong already. Of an ``atomic``
    batch all items are placed or none, and none waits: who is not placed because of another one is
    told NotPlacedTogether. Raises Unavailable, with some items committed, or with none of an atomic
    batch; of such a one Conflict, too, where others keep changing the same.
    """
    submitted: list[_Answer | FederationError] = []
    try:
        if atomic:
            submitted += _submitted_together(scheduling, items)
        else:
            for item in items:
                _submit(scheduling, item, submitted)
        await _all_arrived([each for each in submitted if isinstance(each, asyncio.Future)])
    finally:
        for each in submitted:
            if isinstance(each, asyncio.Future):
                each.cancel()
    answers = [_outcome(each) for each in submitted]
    if atomic:
        for answer in answers:
            if isinstance(answer, Conflict):
                raise answer
    for item, answer in zip(items, answers, strict=True):
        if isinstance(item, BatchItem) and isinstance(answer, Scheduled):
            scheduling.learn(item.binding)
    return answers


def _submit(
    scheduling: Scheduling,
    item: BatchItem | InvalidRequest,
    submitted: list[_Answer | FederationError],
) -> None:
    if isinstance(item, InvalidRequest):
        submitted.append(item)
        return
    try:
        submitted.append(
            scheduling.submit(
                item.binding,
                adopt=item.adopt,
                wait=item.wait,
                once=item.once,
                place=len(submitted) + 1,
            )
        )
    except ITEM_ERRORS as error:
        submitted.append(error)


def _submitted_together(
    scheduling: Scheduling, items: Sequence[BatchItem | InvalidRequest]
) -> Sequence[_Answer | FederationError]:
    """What each item will be answered; where one is wrong, none is decided."""
    sound: list[BatchItem] = []
    wrong: dict[int, FederationError] = {}
    known: dict[Hashable, int] = {}
    for position, item in enumerate(items):
        try:
            sound.append(_checked(scheduling, item, position, known))
        except ITEM_ERRORS as error:
            wrong[position] = error
    if not wrong:
        return scheduling.submit_together((each.binding, each.adopt, each.once) for each in sound)
    first = items[min(wrong)]
    key = first.binding.key if isinstance(first, BatchItem) else ""
    spoilt = not_placed_together(min(wrong) + 1, key, len(wrong) - 1)
    return [wrong.get(position, spoilt) for position in range(len(items))]


def _checked(
    scheduling: Scheduling,
    item: BatchItem | InvalidRequest,
    position: int,
    known: dict[Hashable, int],
) -> BatchItem:
    """The item. Raises what is wrong with it, also that an earlier one names the same."""
    if isinstance(item, InvalidRequest):
        raise item
    scheduling.check(item.binding)
    if item.binding.gang is not None:
        raise InvalidRequest.of(
            "spec.gang", "cannot be used in an atomic batch: nobody waits there"
        )
    same = known.setdefault(item.binding.key, position)
    if same != position:
        rule = f"is that of items[{same}]: an atomic batch names each binding once"
        raise InvalidRequest.of("metadata.name", rule)
    if item.once is not None:
        same = known.setdefault((item.once.caller, item.once.key), position)
        if same != position:
            raise InvalidRequest.of("idempotencyKey", f"is that of items[{same}]")
    return item


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
            fail(ended, error)
        elif not left:
            ended.set_result(None)

    for answer in answers:
        answer.add_done_callback(arrived)
    if answers:
        await ended


def _outcome(answer: _Answer | FederationError) -> Scheduled | FederationError:
    if isinstance(answer, FederationError):
        return answer
    error = answer.exception()
    return error if isinstance(error, FederationError) else answer.result()
