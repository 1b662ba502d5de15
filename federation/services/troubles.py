"""What keeps happening to work that is done again and again: told when it begins, changes, ends.

Must not decide what is trouble, nor end the work.
"""

from __future__ import annotations

from logging import Logger


class Trouble:
    """Of one kind of work; ``message`` says what does not get done."""

    def __init__(self, logger: Logger, message: str) -> None:
        self._logger = logger
        self._message = message
        self._why = ""

    def met(self, error: Exception) -> None:
        """It happened, perhaps again: logged unless it was the same last time."""
        if str(error) != self._why:
            self._why = str(error)
            self._logger.warning(self._message, extra={"fields": {"why": self._why}})

    def over(self) -> None:
        """It worked this time."""
        if self._why:
            self._why = ""
            self._logger.info("over: %s", self._message)
