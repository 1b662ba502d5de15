"""Telling observers of what is done already: their faults change nothing of it.

Must not know what they are told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec

from federation.services.troubles import TOLD_AGAIN_SECONDS, Trouble

P = ParamSpec("P")

_FAILURES: Final = Trouble(
    logging.getLogger(__name__), "an observer failed", again_seconds=TOLD_AGAIN_SECONDS
)


def tell(observers: Iterable[Callable[P, None]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Each of them; one that raises keeps no other from being told, nor whoever tells."""
    for observer in observers:
        try:
            observer(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - told; what is done stays done
            _FAILURES.met(error, observer=repr(observer))
