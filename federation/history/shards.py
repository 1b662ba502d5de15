"""Work in pieces that do not know each other, on several processes of this machine.

Must not know what is worked out; results come in the order of the pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

from federation.model.errors import Unavailable

Piece = TypeVar("Piece")
Result = TypeVar("Result")

# Pieces handed out beforehand for each process, so that none waits for the next one.
_AHEAD: Final = 2


def worked_out(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], processes: int
) -> Iterator[Result]:
    """Yield the result of each piece, in order; ``work`` and pieces travel to other processes.

    Raises what the work raises, and Unavailable if a process ended.
    """
    processes = min(processes, len(pieces))
    if processes <= 1:
        yield from map(work, pieces)
        return
    # These take long to load, and one process needs none of them.
    import multiprocessing  # noqa: PLC0415 - see above
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - see above
    from concurrent.futures.process import BrokenProcessPool  # noqa: PLC0415 - see above

    # Not forked, because callers may run threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        rest = iter(pieces)
        waiting = [pool.submit(work, piece) for piece in islice(rest, processes * _AHEAD)]
        try:
            while waiting:
                yield waiting.pop(0).result()
                waiting += [pool.submit(work, piece) for piece in islice(rest, 1)]
        except BrokenProcessPool as error:
            raise Unavailable(
                "A process that worked on the trace was ended, for lack of memory perhaps: try "
                "again with fewer --workers."
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
