"""Failures of scheduler plugins: told to the caller in a line, and to the log with their stack.

Must not swallow anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from federation.model.errors import PluginFailed

logger = logging.getLogger(__name__)


@contextmanager
def plugin_failures_logged() -> Iterator[None]:
    """Logs a PluginFailed that passes."""
    try:
        yield
    except PluginFailed as error:
        log_plugin_failure(error)
        raise


def log_plugin_failure(error: PluginFailed) -> None:
    """With what the plugin raised, if it did: who wrote it needs to see where."""
    fields = {"reason": error.message}
    logger.warning("scheduler plugin failed", exc_info=error.__cause__, extra={"fields": fields})
