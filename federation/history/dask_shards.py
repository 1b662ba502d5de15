"""Work in pieces on the workers of a Dask cluster that is there already.

Must not know what is worked out, nor wait for ever: without a worker the wait has an end. Results
come in the order of the pieces. ``distributed`` is loaded when it is needed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Final, TypeVar

from federation.model.errors import FederationError, Unavailable

Piece = TypeVar("Piece")
Result = TypeVar("Result")

# How long the cluster may be without a worker, or a scheduler.
PATIENCE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 1.0
# Pieces handed out beforehand for each thread of the workers, so that none waits.
_AHEAD: Final = 2
_MISSING: Final = (
    "This needs packages that are not installed here: pip install 'fedsched[whatif]' brings them."
)


def worked_out_by_dask(
    work: Callable[[Piece], Result],
    pieces: Iterable[Piece],
    address: str,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> Iterator[Result]:
    """Yield the result of each piece, in order; ``work`` and pieces travel to the workers.

    They need this release installed. Raises what the work raises, Unavailable, and FederationError
    if workers have another release. Unavailable: no scheduler or worker was there for so long, or
    a piece ended several workers.
    """
    try:
        dask, distributed = import_module("dask"), import_module("distributed")
    except ModuleNotFoundError as error:
        raise FederationError(_MISSING) from error
    # A piece carries its part of the trace, because workers need not see the file.
    with dask.config.set({"admin.large-graph-warning-threshold": "1GiB"}):
        try:
            client = distributed.Client(address, timeout=patience_seconds, set_as_default=False)
        except (OSError, ValueError, ImportError) as error:
            raise Unavailable(f"No Dask scheduler answers at {address}: {error}") from error
        try:
            cluster = _Cluster(distributed, client, address, patience_seconds)
            yield from cluster.worked_out(work, iter(pieces))
        finally:
            client.close(timeout=_LOOK_SECONDS)


def own_release() -> str:
    """Return the release of fedsched; workers run this, too."""
    # It is loaded only for a Dask cluster.
    from importlib.metadata import version  # noqa: PLC0415 - see above

    return version("fedsched")


class _Cluster:
    """A Dask cluster as its client sees it, for one run."""

    def __init__(
        self, distributed: Any, client: Any, address: str, patience_seconds: float
    ) -> None:
        self._distributed = distributed
        self._client = client
        self._address = address
        self._patience_seconds = patience_seconds

    def worked_out(
        self, work: Callable[[Piece], Result], pieces: Iterator[Piece]
    ) -> Iterator[Result]:
        threads = self._threads()
        self._check_releases()
        submit = self._client.submit
        waiting = [submit(work, piece, pure=False) for piece in islice(pieces, threads * _AHEAD)]
        while waiting:
            yield self._result(waiting.pop(0))
            waiting += [submit(work, piece, pure=False) for piece in islice(pieces, 1)]

    def _threads(self) -> int:
        """Wait for workers and count their threads. Raises Unavailable."""
        end = time.monotonic() + self._patience_seconds
        while not (threads := self._threads_now()):
            if time.monotonic() > end:
                raise self._nobody()
            time.sleep(_LOOK_SECONDS / 10)
        return threads

    def _threads_now(self) -> int:
        """Count the threads of workers; 0 also if the scheduler cannot be asked."""
        try:
            return sum(self._client.nthreads().values())
        except (OSError, RuntimeError, AttributeError):
            return 0

    def _check_releases(self) -> None:
        """Raises FederationError."""
        try:
            releases: Sequence[str] = self._client.run(own_release).values()
        except ImportError as error:
            raise FederationError(
                f"A worker at {self._address} lacks fedsched ({error}): install fedsched[whatif] "
                f"{own_release()} on all of them."
            ) from error
        except OSError as error:
            raise self._nobody() from error
        foreign = sorted({*releases} - {own_release()})
        if foreign:
            raise FederationError(
                f"Workers at {self._address} have release {', '.join(foreign)} of fedsched, and "
                f"this is {own_release()}: they have to be the same."
            )

    def _result(self, future: Any) -> Any:
        distributed = self._distributed
        left_at: float | None = None
        while True:
            try:
                return future.result(timeout=_LOOK_SECONDS)
            except (TimeoutError, distributed.TimeoutError):
                if self._threads_now():
                    left_at = None
                    continue
                left_at = left_at or time.monotonic()
                if time.monotonic() - left_at > self._patience_seconds:
                    raise self._nobody() from None
            except (distributed.KilledWorker, distributed.client.FutureCancelledError) as error:
                raise Unavailable(
                    f"Workers at {self._address} were ended by their work, for lack of memory "
                    "perhaps: try again with a shorter --window."
                ) from error

    def _nobody(self) -> Unavailable:
        return Unavailable(
            f"No Dask worker was there at {self._address} for {self._patience_seconds:g} s: start "
            "some, and try again."
        )
