"""How log records look: one line of text or one JSON object, fields beside the message.

Must not decide what is logged. Fields come as ``extra={"fields": {...}}``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Final

from federation.model.printable import printable, printable_json
from federation.runtime import spans
from federation.runtime.log_fields import LogFormat, LogLevel, work_fields
from federation.runtime.terminal import OneLineFormatter

PROGRAMS: Final = ("federation", "estimator")


def _time_of(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "fields", {})
    return fields


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **work_fields(),
            **_fields_of(record),
            **spans.ids(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return printable_json(json.dumps(line, ensure_ascii=False, default=str))


class TextFormatter(OneLineFormatter):
    """For people: time, level, message, key=value."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        named = {**work_fields(), **_fields_of(record), **spans.ids()}
        fields = "".join(f" {key}={value}" for key, value in named.items())
        return printable(f"{_time_of(record)} {record.levelname:<7} {record.message}{fields}")


FORMATTERS: Mapping[LogFormat, type[logging.Formatter]] = {
    LogFormat.TEXT: TextFormatter,
    LogFormat.JSON: JsonFormatter,
}


def configure_logging(stream: IO[str], *, form: LogFormat, level: LogLevel) -> None:
    """Send every record of the process to ``stream``; libraries only from warnings on."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMATTERS[form]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for program in PROGRAMS:
        logging.getLogger(program).setLevel(level.upper())


def change_level(level: LogLevel) -> None:
    """Logs everything from now on; the second time what ``level`` says again, and so on."""
    is_debug = logging.getLogger(PROGRAMS[0]).level == logging.DEBUG
    new = level.upper() if is_debug else LogLevel.DEBUG.upper()
    for program in PROGRAMS:
        logging.getLogger(program).setLevel(new)
    logging.getLogger(PROGRAMS[0]).warning("log level", extra={"fields": {"level": new.lower()}})
