"""Telling observers of what is done already: their faults change nothing of it.

Must not know what they are told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import ParamSpec

P = ParamSpec("P")

logger = logging.getLogger(__name__)


def tell(observers: Iterable[Callable[P, None]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Each of them; one that raises keeps no other from being told, nor whoever tells."""
    for observer in observers:
        try:
            observer(*args, **kwargs)
        except Exception:
            logger.exception("an observer failed", extra={"fields": {"observer": repr(observer)}})
