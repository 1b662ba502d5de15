"""Spans of time as people write them: ``90s``, ``1h30m``, ``500ms``, ``7d``, and seconds alone.

Must not read any clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import click

from federation.model.errors import InvalidRequest

MAX_SECONDS: Final = 10.0**10
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604_800}
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|[smhdw])", re.ASCII)
_SPAN: Final = re.compile(f"(?:{_PART.pattern})+", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?", re.ASCII)


def has_unit(text: str) -> bool:
    """Whether the text is a span of time, and says its unit."""
    return _SPAN.fullmatch(text) is not None


def seconds_of(text: str, option: str) -> float:
    """How many seconds the text says. Raises InvalidRequest."""
    if _NUMBER.fullmatch(text):
        return float(text)
    if has_unit(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    raise InvalidRequest.of(option, f"must be a span such as 90s, 1h30m or 7d, not {text!r}")


def whole_seconds_of(text: str, option: str) -> int:
    """The same of what counts in whole seconds. Raises InvalidRequest."""
    seconds = seconds_of(text, option)
    if not seconds.is_integer():
        raise InvalidRequest.of(option, f"must be whole seconds, not {text!r}")
    return int(seconds)


@dataclass
class DurationType(click.ParamType[float | int]):
    """An option that takes a span of time, in seconds from ``least`` to ``most``.

    ``is_whole``: an integer. Seconds alone are also taken.
    """

    least: float = 0.0
    most: float = MAX_SECONDS
    is_whole: bool = False
    is_open: bool = False
    name: str = "span"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | int:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # a default, in seconds
        try:
            read = whole_seconds_of if self.is_whole else seconds_of
            seconds = read(value, "")
        except InvalidRequest as error:
            self.fail(error.violations[0].rule, param, ctx)
        if not self.least <= seconds <= self.most or (self.is_open and seconds == self.least):
            above = "more than" if self.is_open else "at least"
            rule = f"must be {above} {self.least:g} s and at most {self.most:g} s, not {value!r}"
            self.fail(rule, param, ctx)
        return seconds
