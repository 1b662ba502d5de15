"""Work in pieces on other processes of this machine.

Must not know what is worked out, nor be loaded where one process is enough: it takes long.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Final, TypeVar

from federation.model.errors import Unavailable

Piece = TypeVar("Piece")
Result = TypeVar("Result")

# Handed out beforehand, so that nobody waits for the next one.
_AHEAD: Final = 2


def worked_out_by(
    processes: int, work: Callable[[Piece], Result], pieces: Sequence[Piece]
) -> Iterator[Result]:
    """What each piece comes to, in order.

    Raises what the work raises, and Unavailable where a process ended.
    """
    # Not forked: who starts them may run threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        try:
            yield from _in_order(pool, work, iter(pieces), processes * _AHEAD)
        except BrokenProcessPool as error:
            raise Unavailable(
                "A process that worked on the trace was ended, for lack of memory perhaps: try "
                "again with fewer --workers."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor,
    work: Callable[[Piece], Result],
    pieces: Iterator[Piece],
    ahead: int,
) -> Iterator[Result]:
    def handed_out(some: Iterable[Piece]) -> list[Future[Result]]:
        return [pool.submit(work, piece) for piece in some]

    waiting = handed_out(islice(pieces, ahead))
    while waiting:
        first = waiting.pop(0)
        yield first.result()
        waiting += handed_out(islice(pieces, 1))
