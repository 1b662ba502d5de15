"""Batches of bindings: every item is decided alone, or all items are placed or none.

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
from federation.services.values import IdempotencyKey, Scheduled

_Answer: TypeAlias = "asyncio.Future[Scheduled]"

# Errors of one item that do not concern the other items.
ITEM_ERRORS = (InvalidRequest, PreconditionFailed, Conflict, NewerBody)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """A binding of a batch with its options, which are those of ``Scheduling.schedule``."""

    binding: Binding
    adopt: bool = False
    wait: bool = True
    once: IdempotencyKey | None = None


async def schedule_batch(
    scheduling: Scheduling, items: Sequence[BatchItem | InvalidRequest], *, atomic: bool = False
) -> list[Scheduled | FederationError]:
    """Decide the items by descending priority and place in the batch; answer in their order.

    The answer of a wrong item is its error; an item that is an error is wrong already. Of an
    ``atomic`` batch all items are placed or none, and none waits: NotPlacedTogether is the answer
    of items that are not placed because of another one.

    Raises Unavailable; some items may be committed then, but none of an atomic batch. Raises
    Conflict for an atomic batch if other requests keep changing the same bindings.
    """
    submitted: list[_Answer | FederationError] = []
    try:
        if atomic:
            submitted += _submitted_together(scheduling, items)
        else:
            for item in items:
                _submit(scheduling, item, submitted)
        await _all_arrived([item for item in submitted if isinstance(item, asyncio.Future)])
    finally:
        for answer in submitted:
            if isinstance(answer, asyncio.Future):
                answer.cancel()
    results = [_outcome(answer) for answer in submitted]
    if atomic:
        for result in results:
            if isinstance(result, Conflict):
                raise result
    for item, result in zip(items, results, strict=True):
        if isinstance(item, BatchItem) and isinstance(result, Scheduled):
            scheduling.discovery.request_labels(item.binding)
    return results


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
    """Return the answers of an atomic batch; if an item is wrong, none is decided."""
    sound: list[BatchItem] = []
    wrong: dict[int, FederationError] = {}
    first_positions: dict[Hashable, int] = {}
    for position, item in enumerate(items):
        try:
            sound.append(_checked(scheduling, item, position, first_positions))
        except ITEM_ERRORS as error:
            wrong[position] = error
    if not wrong:
        return scheduling.submit_together((item.binding, item.adopt, item.once) for item in sound)
    first = items[min(wrong)]
    key = first.binding.key if isinstance(first, BatchItem) else ""
    not_decided = not_placed_together(min(wrong) + 1, key, len(wrong) - 1)
    return [wrong.get(position, not_decided) for position in range(len(items))]


def _checked(
    scheduling: Scheduling,
    item: BatchItem | InvalidRequest,
    position: int,
    first_positions: dict[Hashable, int],
) -> BatchItem:
    """Return the item. Raises its error, also if it repeats a binding or key of an earlier one.

    ``first_positions`` has the first item of every binding and idempotency key.
    """
    if isinstance(item, InvalidRequest):
        raise item
    scheduling.check(item.binding)
    if item.binding.gang is not None:
        raise InvalidRequest.of(
            "spec.gang", "cannot be used in an atomic batch: nobody waits there"
        )
    first = first_positions.setdefault(item.binding.key, position)
    if first != position:
        rule = f"is that of items[{first}]: an atomic batch names each binding once"
        raise InvalidRequest.of("metadata.name", rule)
    if item.once is not None:
        first = first_positions.setdefault((item.once.caller, item.once.key), position)
        if first != position:
            raise InvalidRequest.of("idempotencyKey", f"is that of items[{first}]")
    return item


async def _all_arrived(answers: Sequence[_Answer]) -> None:
    """Wait for all answers. Raises an error that concerns the whole batch as soon as it comes."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    pending = len(answers)

    def arrived(answer: _Answer) -> None:
        nonlocal pending
        pending -= 1
        error = None if answer.cancelled() else answer.exception()
        if ended.done():
            return
        if error is not None and not isinstance(error, ITEM_ERRORS):
            fail(ended, error)
        elif not pending:
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
