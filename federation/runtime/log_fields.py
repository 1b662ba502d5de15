"""Fields of log lines, as what is being worked on meanwhile, and the forms and levels of lines.

Must not log anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class LogFormat(StrEnum):
    """How log lines look."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_about: ContextVar[Mapping[str, str]] = ContextVar("about", default=NOTHING)


def work_fields() -> Mapping[str, str]:
    """Of what is being worked on here."""
    return _about.get()


def work_on(**fields: str) -> None:
    """From now on, to the end of the task or call that says so."""
    _about.set(fields)


@contextmanager
def working_on(**fields: str) -> Iterator[None]:
    """Within; what was said before is said again afterwards."""
    token = _about.set(fields)
    try:
        yield
    finally:
        _about.reset(token)
