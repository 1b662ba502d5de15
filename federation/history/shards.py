"""Work in pieces that do not know each other, on as many processes as there are to be.

Must not know what is worked out; results come in the order of the pieces, whoever worked them out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def worked_out(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], processes: int
) -> Iterator[Result]:
    """What each piece comes to, in order; ``work`` and pieces travel to other processes.

    Raises what the work raises, and Unavailable where a process ended.
    """
    if min(processes, len(pieces)) <= 1:
        yield from map(work, pieces)
        return
    # Who asks for one process, or for help, need not wait for what starts others.
    from federation.history.processes import worked_out_by  # noqa: PLC0415 - see above

    yield from worked_out_by(min(processes, len(pieces)), work, pieces)
